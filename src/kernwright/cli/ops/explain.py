"""kernwright explain: show which implementation of an op would run on given shapes, and why the others would not."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernwright.cli.arguments import complete_ops
from kernwright.cli.output import say

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from kernwright.core.op import Op


def explain(
    op: Annotated[str, typer.Argument(help="name of an op", autocompletion=complete_ops)],
    shape: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]SIZES[:DTYPE]",
            help="shape of a tensor, such as x=1x4096x3072:bf16, or scale=:fp32 for a number; without a name: of the "
            "op's first tensor; repeatable",
        ),
    ] = None,
    scalar: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="scalar; repeatable")] = None,
    device: Annotated[
        str, typer.Option(help="device of the tensors: cpu, cuda, cuda:1, mps or xpu; this machine need not have it")
    ] = "",
    exact: Annotated[bool, typer.Option("--exact", help='require contract="exact"')] = False,
    backend: Annotated[
        str | None, typer.Option(help="preferred backend, as in kernwright.prefer: cuda, cpu, triton or torch")
    ] = None,
) -> None:
    """List the implementations of an op and say which one would run on a call.

    Nothing is allocated, built or launched. Required tensors without a --shape get their usual shape: that of the first
    tensor if they carry data, its last size if they modulate it.
    """
    from kernwright.core.errors import KernwrightError, did_you_mean
    from kernwright.ops import FAMILIES

    if op not in FAMILIES:  # checked before torch is imported
        remedy = did_you_mean(op, FAMILIES, f"the ops of kernwright.ops are: {', '.join(sorted(FAMILIES))}")
        raise KernwrightError(f"there is no op {op!r}", remedy)
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from kernwright.capture.own_ops import settings_of
    from kernwright.ops.catalog import dispatcher
    from kernwright.runtime.preference import known

    dispatch = dispatcher(op)
    wanted = known(backend, "--backend") if backend is not None else None
    place = _device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    # A fake tensor has a shape, a dtype and a device, but no memory, so the machine need not have the device.
    with FakeTensorMode():
        arguments: dict[str, Any] = _tensors(dispatch.op, shape or [], place)
        arguments |= _scalars(dispatch.op, scalar or [], settings_of(dispatch.op))
        explanation = dispatch.explain(**arguments, backend=wanted, contract="exact" if exact else None)
    say(explanation)
    if "sees no CUDA device" in str(explanation):
        say("Further requirements of the kernels are checked on a machine with a GPU.")


def _device(name: str) -> torch.device:
    """Return the device of a name that torch can make fake tensors on without a further package."""
    import torch

    from kernwright.core.errors import KernwrightError

    if not re.fullmatch(r"cpu|mps|(cuda|xpu)(:\d{1,2})?", name):
        raise KernwrightError(f"--device {name}: is not supported here", "use cpu, cuda, cuda:1, mps or xpu")
    return torch.device(name)


def _tensors(op: Op, shapes: list[str], device: torch.device) -> dict[str, Tensor]:
    import torch

    from kernwright.core.errors import KernwrightError, did_you_mean
    from kernwright.ops.usual_shapes import usual_shape

    first = op.activations[0]
    described = dict(_described(text, first) for text in shapes)
    known = [parameter.name for parameter in op.tensor_parameters]
    if strangers := sorted({*described} - {*known}):
        raise KernwrightError(
            f"--shape: {op.name} has no tensor {strangers[0]!r}",
            did_you_mean(strangers[0], known, f"it has: {', '.join(known)}"),
        )
    if first not in described:
        raise KernwrightError(f"{first} has no shape", f"add --shape {first}=1x4096x3072:bf16")
    sizes, dtype = described[first]
    for parameter in op.tensor_parameters:
        if not parameter.optional and parameter.name not in described:
            own_sizes, own_dtype = usual_shape(op, parameter.name, sizes)
            described[parameter.name] = own_sizes, _dtypes()[own_dtype] if own_dtype else None
    return {
        name: torch.empty(own, dtype=own_dtype or dtype or torch.bfloat16, device=device)
        for name, (own, own_dtype) in described.items()
    }


def _dtypes() -> dict[str, torch.dtype]:
    import torch

    dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "fp64": torch.float64}
    indices = {"i8": torch.int8, "u8": torch.uint8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64}
    return dtypes | indices | {"bool": torch.bool}


def _described(text: str, first: str) -> tuple[str, tuple[list[int], torch.dtype | None]]:
    from kernwright.core.errors import KernwrightError

    found = re.fullmatch(r"(?:(?:(\w+)=)?(\d+(?:x\d+)*)|(\w+)=)(?::(\w+))?", text)
    dtypes = _dtypes()
    if found is None or (found[4] and found[4] not in dtypes):
        raise KernwrightError(
            f"--shape {text}: is not a shape",
            f"write x=1x4096x3072:bf16, or scale=:fp32 for a number; dtypes: {', '.join(dtypes)}",
        )
    sizes = [int(size) for size in found[2].split("x")] if found[2] else []
    if math.prod(sizes) >= 2**60:
        raise KernwrightError(f"--shape {text}: is larger than any memory", "use smaller sizes")
    return found[1] or found[3] or first, (sizes, dtypes[found[4]] if found[4] else None)


def _scalars(op: Op, pairs: list[str], own: dict[str, Any]) -> dict[str, Any]:
    from kernwright.core.errors import KernwrightError, did_you_mean

    defaults = {**op.scalar_defaults, **own}
    scalars: dict[str, Any] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if name not in defaults:
            known = ", ".join(defaults) or "none"
            remedy = did_you_mean(name, defaults, f"it has: {known}")
            raise KernwrightError(f"--scalar {pair}: {op.name} has no scalar {name!r}", remedy)
        default = defaults[name]
        try:
            scalars[name] = value in ("1", "true", "True") if isinstance(default, bool) else type(default)(value)
        except ValueError:
            raise KernwrightError(f"--scalar {pair}: is not a {type(default).__name__}", "correct the value") from None
    return scalars
