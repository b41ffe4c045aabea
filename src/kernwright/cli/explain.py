"""kernwright explain: which implementation of an op would run on tensors of given shapes, and why no other one."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from kernwright.ops.definition import Op


def explain(
    op: Annotated[str, typer.Argument(help="an op of kernwright.ops")],
    shape: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]SIZES[:DTYPE]",
            help="a tensor, as x=1x4096x3072:bf16; without a name it is the op's first; repeatable",
        ),
    ] = None,
    scalar: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="a scalar; repeatable")] = None,
    device: Annotated[str, typer.Option(help="where the tensors would be")] = "",
    exact: Annotated[bool, typer.Option("--exact", help='as contract="exact"')] = False,
    backend: Annotated[str | None, typer.Option(help="as kernwright.prefer: cuda, cpu, triton or torch")] = None,
) -> None:
    """Lists every implementation of an op with its verdict on a call. Nothing is allocated, built or launched.

    Required tensors that are not named get the first one's sizes if they carry data, its last size if they modulate it.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from kernwright.cli.console import out
    from kernwright.runtime.catalog import dispatcher
    from kernwright.runtime.preference import prefer

    dispatch = dispatcher(op)
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    # A fake tensor has a shape, a dtype and a device, and no memory: a device that is not here can be asked about too.
    with FakeTensorMode(), prefer(backend):  # type: ignore[arg-type]
        tensors = _tensors(dispatch.op, shape or [], place)
        explanation = dispatch.explain(
            **tensors, **_scalars(dispatch.op, scalar or []), contract="exact" if exact else None
        )
    out.print(str(explanation), highlight=False, markup=False, soft_wrap=True)


def _tensors(op: Op, shapes: list[str], device: str) -> dict[str, Tensor]:
    import torch

    from kernwright.errors import KernwrightError

    first = op.activations[0]
    described = dict(_described(text, first) for text in shapes)
    known = [parameter.name for parameter in op.tensor_parameters]
    if strangers := sorted({*described} - {*known}):
        raise KernwrightError(f"--shape: {op.name} has no tensor {strangers[0]!r}", f"it has: {', '.join(known)}")
    if first not in described:
        raise KernwrightError(f"{first} has no shape", f"say it, as --shape {first}=1x4096x3072:bf16")
    sizes, dtype = described[first]
    for parameter in op.tensor_parameters:
        if not parameter.optional and parameter.name not in described:
            described[parameter.name] = (sizes if parameter.name in op.activations else sizes[-1:], None)
    return {
        name: torch.empty(own, dtype=own_dtype or dtype or torch.bfloat16, device=device)
        for name, (own, own_dtype) in described.items()
    }


def _described(text: str, first: str) -> tuple[str, tuple[list[int], torch.dtype | None]]:
    import torch

    from kernwright.errors import KernwrightError

    found = re.fullmatch(r"(?:(\w+)=)?(\d+(?:x\d+)*)(?::(\w+))?", text)
    dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "fp64": torch.float64}
    dtypes |= {"i32": torch.int32, "i64": torch.int64, "bool": torch.bool}
    if found is None or (found[3] and found[3] not in dtypes):
        raise KernwrightError(
            f"--shape {text}: is no shape", f"write it as x=1x4096x3072:bf16; dtypes: {', '.join(dtypes)}"
        )
    sizes = [int(size) for size in found[2].split("x")]
    if math.prod(sizes) >= 2**60:
        raise KernwrightError(f"--shape {text}: is beyond any memory", "use smaller sizes")
    return found[1] or first, (sizes, dtypes[found[3]] if found[3] else None)


def _scalars(op: Op, pairs: list[str]) -> dict[str, Any]:
    from kernwright.errors import KernwrightError

    scalars: dict[str, Any] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if name not in op.scalar_defaults:
            known = ", ".join(op.scalar_defaults) or "none"
            raise KernwrightError(f"--scalar {pair}: {op.name} has no scalar {name!r}", f"it has: {known}")
        default = op.scalar_defaults[name]
        try:
            scalars[name] = value in ("1", "true", "True") if isinstance(default, bool) else type(default)(value)
        except ValueError:
            raise KernwrightError(f"--scalar {pair}: is no {type(default).__name__}", "correct the value") from None
    return scalars
