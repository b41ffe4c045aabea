"""Entry: turns a side (baseline or candidate) into one callable per row, in the call style of the row."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernwright.core.op import Op
from kernwright.core.registry import SHIPPED, ops_from_file, shipped_ops
from kernwright.judge.protocol.messages import ChosenImplementation
from kernwright.judge.protocol.orders import RowSignature, SideOrders
from kernwright.tasks.tensor import ConcreteTensor

Arguments = Sequence[Any]
BoundCall = Callable[[Arguments], Any]  # takes the arguments of a slot, returns its outputs (None if it writes them)


class SideProblem(Exception):
    """The side cannot be loaded or called: a build error, a missing entry, a wrong signature."""


def find_op(name: str, definitions: str | None) -> Op:
    return (ops_from_file(Path(definitions)) if definitions else shipped_ops())[name]


def load(side: SideOrders) -> Callable[..., Any]:
    """Return the function of a side, loaded or built but not yet called."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        from kernwright.judge.worker.triton_interpreter import compute_bfloat16_like_gpu

        compute_bfloat16_like_gpu()
    kind = side.kind
    if kind in ("eager", "compile"):
        return find_op(side.op, side.definitions).reference
    if kind == "adapter":
        adapter = _python_function(Path(side.file), side.function)
        return adapter(side.op)  # type: ignore[no-any-return]
    if kind == "package":
        from kernwright.baselines.loading import load_published

        return load_published(side.model_dump())
    if kind == "shipped":
        return getattr(importlib.import_module(SHIPPED), side.op)  # type: ignore[no-any-return]
    if side.language in ("cpp", "cuda"):
        return _native_function(side)
    return _python_function(Path(side.folder) / side.file, side.function)


def implementation_of(side: SideOrders, arguments: Arguments, scalars: dict[str, Any]) -> ChosenImplementation:
    """Return the implementation of a shipped op that these arguments select, and why better ones were refused."""
    dispatcher = importlib.import_module(f"{SHIPPED}.catalog").dispatcher
    if side.kind != "shipped":
        raise SideProblem("only the ops that ship can explain themselves")
    refused: list[str] = []
    for answer in dispatcher(side.op).answers(*arguments, **scalars):
        if answer.fits:
            own = answer.implementation
            return ChosenImplementation(backend=own.backend, contract=own.contract, refused=tuple(refused))
        refused.append(str(answer))
    raise SideProblem(f"nothing runs {side.op}: {'; '.join(refused)}")


def own_code(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same function with its own code object.

    torch.compile stores compiled code by code object. So each row has its own static shapes and its own limit on
    recompiles.
    """
    assert isinstance(function, types.FunctionType)
    own = types.FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    own.__kwdefaults__ = function.__kwdefaults__
    return own


def _python_function(path: Path, name: str) -> Callable[..., Any]:
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location("kernwright_side_" + path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise SideProblem(f"{path.name} has no function {name!r}: correct entry in candidate.toml")
    return function  # type: ignore[no-any-return]


def _native_function(side: SideOrders) -> Callable[..., Any]:
    import tvm_ffi.cpp

    folder = Path(side.folder)
    files = [str(folder / name) for name in (side.file, *side.build.sources)]
    built = Path(side.build_folder)
    library = built / "candidate.so"
    if not (built / "complete").exists():
        is_cuda = side.language == "cuda"
        try:
            library = Path(
                tvm_ffi.cpp.build(
                    name="candidate",
                    cpp_files=[f for f in files if not f.endswith(".cu")],
                    cuda_files=[f for f in files if f.endswith(".cu")] if is_cuda else None,
                    extra_cflags=["-O3", *side.build.cflags],
                    extra_cuda_cflags=["-O3", *side.build.cuda_cflags],
                    extra_ldflags=list(side.build.ldflags),
                    extra_include_paths=[str(folder)],
                    build_directory=str(built),
                )
            )
        except RuntimeError as error:
            raise SideProblem(f"the build failed: {_complaints(str(error), folder)}") from None
        (built / "complete").write_text(library.name)
    module = tvm_ffi.load_module(str(library))
    try:
        return getattr(module, side.function)  # type: ignore[no-any-return]
    except AttributeError:
        raise SideProblem(
            f"the library exports no {side.function!r}: add TVM_FFI_DLL_EXPORT_TYPED_FUNC({side.function}, ...)"
        ) from None


def _complaints(log: str, folder: Path) -> str:
    """Return the error lines of a compiler's log."""
    lines = [line.replace(f"{folder}/", "") for line in log.splitlines() if "error" in line.lower()]
    return "\n".join(lines[:6]) or log[-1000:]


class OutputProblem(SideProblem):
    """The side returned something other than the outputs of the row."""


class RowCall:
    """Calls one side on one row. All sides use this wrapper."""

    def __init__(self, side: SideOrders, function: Callable[..., Any], row: RowSignature, device: str = "cpu") -> None:
        self.device = device
        self.outputs = row.outputs
        self.scalars = row.scalars
        self.style = row.style
        self.function = function
        self.native = side.language in ("cpp", "cuda")
        self.writes = side.style == "writes"
        if side.kind == "compile":
            self.function = torch.compile(own_code(function), fullgraph=True, dynamic=False)
        if not self.native:
            self._check_signature(row.inputs)

    def _check_signature(self, inputs: Sequence[str]) -> None:
        extra = {"out": None} if self.writes and self.outputs else {}
        try:
            inspect.signature(self.function).bind(*inputs, **self.scalars, **extra)
        except TypeError as error:
            wanted = ", ".join([*inputs, "*", *self.scalars, *extra])
            raise SideProblem(f"wrong signature: {error}; it is called as ({wanted})") from None
        except ValueError:
            return  # the signature is unreadable; the first call will show

    def bind(self) -> BoundCall:
        """Return the callable that the loop runs, in the style of the row."""
        function, scalars = self.function, self.scalars
        if not self.writes:
            return lambda arguments: function(*arguments, **scalars)
        if self.style == "writes":
            return self._into(len(self.outputs))
        write = self._into(len(self.outputs))
        shapes = [(t.shape, t.strides, getattr(torch, t.torch_dtype_name)) for t in self.outputs]
        device = self.device

        def allocate_and_write(arguments: Arguments) -> list[Tensor]:
            outputs = [
                torch.empty_strided(shape, strides, dtype=dtype, device=device) for shape, strides, dtype in shapes
            ]
            write([*arguments, *outputs])
            return outputs

        return allocate_and_write

    def _into(self, outputs: int) -> BoundCall:
        """Return a call in destination-passing style: the arguments of a slot end with its outputs."""
        function, scalars = self.function, self.scalars
        if self.native:
            values = tuple(scalars.values())
            if outputs == 0:
                return lambda a: function(*a, *values)
            return lambda a: function(*a[:-outputs], *values, *a[-outputs:])
        if outputs == 0:
            return lambda a: function(*a, **scalars)
        if outputs == 1:
            return lambda a: function(*a[:-1], **scalars, out=a[-1])
        return lambda a: function(*a[:-outputs], **scalars, out=tuple(a[-outputs:]))

    @staticmethod
    def not_a_tensor(found: Any, number: int = 0) -> OutputProblem:
        return OutputProblem(f"output {number} is a {type(found).__name__}, not a plain torch.Tensor")

    def check_outputs(self, result: Any) -> list[Tensor]:
        """Check that every output is a plain tensor of the row's shape, dtype, strides and device."""
        if not self.outputs:
            return []  # an in-place op: its return value is ignored
        tensors = [result] if isinstance(result, Tensor) else list(result) if isinstance(result, list | tuple) else []
        if len(tensors) != len(self.outputs):
            got = type(result).__name__ if not tensors else f"{len(tensors)} outputs"
            raise OutputProblem(f"returned {got} where the op gives {len(self.outputs)} tensor(s)")
        for number, (tensor, spec) in enumerate(zip(tensors, self.outputs, strict=True)):
            if type(tensor) is not Tensor:
                raise self.not_a_tensor(tensor, number)
            wanted = (tuple(spec.shape), getattr(torch, spec.torch_dtype_name), self.device)
            got_ = (tuple(tensor.shape), tensor.dtype, tensor.device.type)
            if got_ != wanted:
                raise OutputProblem(
                    f"output {number} is {got_[1]} {list(got_[0])} on {got_[2]}; "
                    f"the row asks for {wanted[1]} {list(wanted[0])} on {wanted[2]}"
                )
            if not _same_layout(tensor, spec):
                raise OutputProblem(f"output {number} has strides {tensor.stride()}, the row's are {spec.strides}")
            if (
                tensor.is_neg() or tensor.is_conj() or tensor.requires_grad
            ):  # the judge reads raw memory, which does not show these
                raise OutputProblem(f"output {number} is not what its memory holds, or asks for gradients")
        return tensors

    def check_again(self, results: Iterable[Any]) -> None:
        """Check the results of a block, whose addresses alone were used so far."""
        if self.style == "writes" or not self.outputs:
            return
        for result in results:
            tensors = result if type(result) is tuple or type(result) is list else (result,)
            if not (len(tensors) == len(self._plain) and all(map(_is_plainly, tensors, self._plain))):
                self.check_outputs(result)

    @functools.cached_property
    def _plain(self) -> list[tuple[Any, ...]]:
        return [(torch.Size(t.shape), getattr(torch, t.torch_dtype_name), tuple(t.strides)) for t in self.outputs]


def _is_plainly(tensor: Any, wanted: tuple[Any, ...]) -> bool:
    """Return whether a tensor passes the fast check. Others get the full one."""
    shape, dtype, strides = wanted
    return (
        type(tensor) is Tensor
        and tensor.dtype is dtype
        and tensor.shape == shape
        and tensor.stride() == strides
        and not (tensor.is_neg() or tensor.is_conj() or tensor.requires_grad)
    )


def _same_layout(tensor: Tensor, spec: ConcreteTensor) -> bool:
    """Compare strides, except those of dimensions of size 1, which address nothing."""
    return all(
        size == 1 or own == wanted
        for size, own, wanted in zip(tensor.shape, tensor.stride(), spec.strides, strict=True)
    )
