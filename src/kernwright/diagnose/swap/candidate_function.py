"""CandidateFunction: the replacement of a function, as one callable that takes the op's arguments by name."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernwright.core.errors import KernwrightError
from kernwright.core.op import Op
from kernwright.diagnose.swap.binding import NotCovered, bind

# The kind of device for each language. Tensors of another device would crash the program.
DEVICES = {"cpp": "cpu", "cuda": "cuda", "triton": "cuda", "cutedsl": "cuda"}


def bound_function(original: Callable[..., Any], swap: Mapping[str, Any]) -> tuple[Callable[..., Any], str]:
    """Return the function that replaces the original and takes its arguments, and the bound arguments in words."""
    if swap["source"] == "adapter":
        return _adapter(Path(swap["file"]), swap["function"]), "the original's arguments"
    op = _op(swap["op"], swap["definitions"])
    call = _shipped(op) if swap["source"] == "op" else CandidateCall(op, swap["side"])
    return bind(
        original,
        call,
        tensors={parameter.name: parameter.optional for parameter in op.tensor_parameters},
        scalars=op.scalar_defaults,
        arguments=swap["arguments"],
    )


def _op(name: str, definitions: str | None) -> Op:
    from kernwright.core.registry import ops_from_file, shipped_ops

    return ops_from_file(Path(definitions))[name] if definitions else shipped_ops()[name]


def _shipped(op: Op) -> Callable[..., Any]:
    from kernwright.ops.catalog import dispatcher, public_call

    if dispatcher(op.name).backends == ["torch"]:
        raise KernwrightError(f"the op {op.name} has no kernels, only its reference", "name another op or a candidate")
    return public_call(op.name)


def _adapter(path: Path, name: str) -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location(f"kernwright_adapter_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.append(str(path.parent))  # at the end: it must not hide modules of the program
    spec.loader.exec_module(module)
    return getattr(module, name)  # type: ignore[no-any-return]


class CandidateCall:
    """A candidate folder's function. It takes the op's arguments by name and returns the op's outputs."""

    def __init__(self, op: Op, side: Mapping[str, Any]) -> None:
        from kernwright.judge.protocol.orders import SideOrders
        from kernwright.judge.worker.entry import load

        orders = SideOrders.model_validate(side)
        before = list(sys.path)
        self._function = load(orders)
        added = [entry for entry in sys.path if entry not in before]
        sys.path[:] = [*before, *added]  # its folder must not hide modules of the program
        self._op = op
        self._names = [parameter.name for parameter in op.tensor_parameters]
        self._is_native = orders.language in ("cpp", "cuda")
        self._writes = orders.style == "writes"
        interpreted = orders.language == "triton" and os.environ.get("TRITON_INTERPRET") == "1"
        self._device = None if interpreted else DEVICES.get(orders.language or "")
        self._results: dict[Any, list[tuple[Any, ...]]] = {}  # shape and dtype of the outputs by the inputs' facts

    def __call__(self, **given: Any) -> Any:
        tensors = [given.pop(name, None) for name in self._names]
        scalars = self._op.scalar_defaults | given
        self._refuse(tensors)
        if not self._writes:
            return self._function(*tensors, **scalars)
        outputs = self._outputs(tensors, scalars)
        if self._is_native:
            self._function(*tensors, *scalars.values(), *outputs)
        elif outputs:
            self._function(*tensors, **scalars, out=outputs[0] if len(outputs) == 1 else tuple(outputs))
        else:
            self._function(*tensors, **scalars)
        return None if not outputs else outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _refuse(self, tensors: Sequence[Any]) -> None:
        """Raise NotCovered for a call that the candidate must not see."""
        for name, tensor in zip(self._names, tensors, strict=True):
            if tensor is None:
                continue
            if not isinstance(tensor, Tensor):
                raise NotCovered(f"{name} is a {type(tensor).__name__}, not a tensor")
            if self._device is not None and tensor.device.type != self._device:
                raise NotCovered(f"{name} is on {tensor.device.type}, and the candidate runs on {self._device}")
            if tensor.requires_grad and torch.is_grad_enabled():
                raise NotCovered(f"{name} requires a gradient, which a candidate does not compute")

    def _outputs(self, tensors: Sequence[Tensor | None], scalars: Mapping[str, Any]) -> list[Tensor]:
        """Return new tensors for the outputs. The op's chain tells their shapes and dtypes, on the meta device."""
        if not self._op.outputs:
            return []
        key = (*((None if t is None else (t.shape, t.dtype)) for t in tensors), *scalars.values())
        specs = self._results.get(key)
        if specs is None:
            meta = {n: None if t is None else t.detach().to("meta") for n, t in zip(self._names, tensors, strict=True)}
            specs = [(result.shape, result.dtype) for result in self._op.call(meta, scalars)]
            self._results[key] = specs
        device = next(tensor.device for tensor in tensors if tensor is not None)
        return [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in specs]
