"""PromotedKernel: a candidate that a campaign promoted, as an implementation of its op.

Its folder holds the judged sources, unchanged, and `promotion.json`, which says what was judged.
"""

from __future__ import annotations

import importlib
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from kernwright.core.op import Contract, Op
from kernwright.runtime.call import BadArgument, Call
from kernwright.runtime.fused_op import FusedOp
from kernwright.runtime.gpu import architecture
from kernwright.runtime.implementation import Implementation
from kernwright.runtime.library import Library
from kernwright.runtime.outputs import given_back
from kernwright.runtime.preference import Backend
from kernwright.runtime.promoted.call_form import CallForm, CallForms
from kernwright.runtime.promoted.judged_library import JudgedLibrary
from kernwright.runtime.requirements import on_cpu, on_cuda, triton_there
from kernwright.runtime.target import Target

PROMOTION_FILE = "promotion.json"
ALIGNMENT = {"cpu": 64, "cuda": 256}  # bytes; what torch allocates is aligned so, and the judged tensors were
HEADERS = (".h", ".hpp", ".cuh", ".inc")
MOST_REMEMBERED = 4096  # calls of one kernel whose outputs are remembered


class PromotedSource(BaseModel):
    """How the judged function is built and called, as its candidate.toml said."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    language: Literal["cpp", "cuda", "triton", "python"]
    file: str
    function: str
    style: Literal["returns", "writes"]
    files: tuple[str, ...]
    compiled: tuple[str, ...] = ()
    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()


class PromotionFile(BaseModel):
    """promotion.json: the evidence for a kernel, and the calls that it was judged on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    op: str
    backend: Backend
    contract: Contract
    machine: str = Field(description="architecture of the judged device: x86_64 for a CPU, sm_90 for a GPU")
    source: PromotedSource
    provenance: Mapping[str, Any] = Field(description="campaign, runs, digests, review and device, for a reader")
    forms: tuple[CallForm, ...] = Field(min_length=1)


class PromotedKernel:
    """One promoted kernel.

    Args:
        module: the file of the Python package that holds it (`__file__`).
        package: the name of that package (`__name__`).
    """

    def __init__(self, module: str, package: str) -> None:
        self.folder, self.package = Path(module).parent, package
        text = (self.folder / PROMOTION_FILE).read_text(encoding="utf-8")
        self.file = PromotionFile.model_validate_json(text)
        self.forms = CallForms(self.file.forms)
        self._outputs: dict[Any, list[tuple[tuple[int, ...], tuple[int, ...], torch.dtype]]] = {}

    @property
    def is_native(self) -> bool:
        return self.file.source.language in ("cpp", "cuda")

    def implementation(self, op: Op) -> Implementation:
        """Return the implementation, which takes the judged calls only, on the judged kind of device."""
        there = {"cpu": on_cpu, "cuda": on_cuda, "triton": triton_there}[self.file.backend]
        return Implementation(
            backend=self.file.backend,
            contract=self.file.contract,
            load=lambda: self._runner(op),
            requires=(there, self._machine, self.forms, *([self._library_there] if self.is_native else [])),
            libraries=self._libraries,
        )

    def _machine(self, call: Call) -> str | None:
        own = architecture(call.first.device).name if call.first.is_cuda else platform.machine()
        return None if own == self.file.machine else f"it was judged on {self.file.machine}, this is {own}"

    # The library

    @cached_property
    def library(self) -> JudgedLibrary:
        source = self.file.source
        compiled = tuple(self.folder / name for name in source.compiled)
        headers = tuple(self.folder / name for name in source.files if name.endswith(HEADERS))
        return JudgedLibrary(
            name=f"promoted_{self.file.op}_{self.file.backend}",
            sources=(*compiled, *headers),
            root=self.folder,
            compiled=compiled,
            cflags=source.cflags,
            cuda_cflags=source.cuda_cflags,
            ldflags=source.ldflags,
        )

    def _libraries(self, target: Target) -> list[Library]:
        is_ours = self.is_native and target.name == ("cpu" if self.file.backend == "cpu" else self.file.machine)
        return [self.library] if is_ours and not target.is_elsewhere else []

    def _library_there(self, call: Call) -> str | None:
        return self.library.unavailable(_target(call.first.device))

    # The call

    def _runner(self, op: Op) -> Callable[..., Any]:
        function: Callable[..., Any] | None = None

        def run(*tensors: Any, out: Any = None, **scalars: Any) -> Any:
            nonlocal function
            first = next(own for own in tensors if own is not None)
            if function is None:
                function = self._function(first.device)
            given = [own if own is None else aligned(own) for own in tensors]
            results = self._run(op, function, given, scalars)
            names = [parameter.name for parameter in op.tensor_parameters]
            for name, own, used in zip(names, tensors, given, strict=True):
                if name in op.inplace and own is not used:
                    own.copy_(used)
            return _given_back(op, results, out)

        return run

    def _function(self, device: torch.device) -> Callable[..., Any]:
        source = self.file.source
        if self.is_native:
            return getattr(self.library.load(_target(device)), source.function)  # type: ignore[no-any-return]
        module = f"{self.package}.{source.file.removesuffix('.py').replace('/', '.')}"
        return getattr(importlib.import_module(module), source.function)  # type: ignore[no-any-return]

    def _run(
        self, op: Op, function: Callable[..., Any], tensors: Sequence[Tensor | None], scalars: Mapping[str, Any]
    ) -> list[Tensor]:
        """Call the judged function in the judged style. Outputs are new tensors with the judged layout."""
        if self.file.source.style == "returns":
            result = function(*tensors, **scalars)
            return [result] if isinstance(result, Tensor) else list(result or ())
        device = next(own.device for own in tensors if own is not None)
        outs = [
            torch.empty_strided(shape, strides, dtype=dtype, device=device)
            for shape, strides, dtype in self._results(op, tensors, scalars)
        ]
        if self.is_native:
            function(*tensors, *[scalars[name] for name in op.scalar_defaults], *outs)
        elif outs:
            function(*tensors, **scalars, out=given_back(outs))
        else:
            function(*tensors, **scalars)
        return outs

    def _results(
        self, op: Op, tensors: Sequence[Tensor | None], scalars: Mapping[str, Any]
    ) -> list[tuple[tuple[int, ...], tuple[int, ...], torch.dtype]]:
        """Return shape, strides and dtype of each output: sizes as the definition tells, layouts as judged."""
        key = (*(None if own is None else (own.shape, own.stride(), own.dtype) for own in tensors), *scalars.values())
        if (known := self._outputs.get(key)) is not None:
            return known
        names = [parameter.name for parameter in op.tensor_parameters]
        form = self.forms.find(Call(op, {**dict(zip(names, tensors, strict=True)), **scalars}))
        assert isinstance(form, CallForm), form  # the requirements accepted the call
        meta = {n: None if t is None else t.detach().to("meta") for n, t in zip(names, tensors, strict=True)}
        results = op.results(meta, scalars)
        found = []
        for name in op.outputs:
            shape = tuple(results[name].shape)
            found.append((shape, form.outputs[name].strides(shape), results[name].dtype))
        if len(self._outputs) >= MOST_REMEMBERED:
            self._outputs.clear()
        self._outputs[key] = found
        return found


def aligned(own: Tensor) -> Tensor:
    """Return a tensor, or a copy with the same strides if it does not begin at an aligned address."""
    if own.data_ptr() % ALIGNMENT.get(own.device.type, 1) == 0:
        return own
    copy = torch.empty_strided(own.shape, own.stride(), dtype=own.dtype, device=own.device)
    return copy.copy_(own)


def _given_back(op: Op, results: Sequence[Tensor], out: Any) -> Any:
    """Return the results of a call, in the outputs that the caller gave if there are any."""
    if out is None:
        return given_back(results)
    for name, own, found in zip(op.outputs, [out] if isinstance(out, Tensor) else out, results, strict=True):
        if own.shape != found.shape or own.dtype != found.dtype:
            wanted = f"{found.dtype} {list(found.shape)}"
            raise BadArgument("out", f"{name} is {own.dtype} {list(own.shape)}, not {wanted}")
        own.copy_(found)
    return out


def _target(device: torch.device) -> Target:
    return architecture(device) if device.type == "cuda" else Target("cpu")


def with_promoted(ops: Mapping[str, FusedOp], kernels: Iterable[PromotedKernel]) -> dict[str, FusedOp]:
    """Return the ops of a family, with promoted kernels before their other implementations.

    The fast path of an op would go on with the kernel of the last call, also where a promoted kernel takes the next
    one, so these ops choose their implementation in every call.
    """
    found = dict(ops)
    for kernel in kernels:
        own = found[kernel.file.op]
        others = tuple(replace(each, launch=None) for each in own.implementations)
        found[kernel.file.op] = replace(
            own,
            implementations=(kernel.implementation(own.op), *others),
            derives_outputs=own.derives_outputs or not own.implementations,
        )
    return found
