"""OutputCheck: the comparison of a candidate's results with the original's.

The original itself rounds. If it also runs in float64, that result is the oracle, and the candidate's error may be at
most `FACTOR` times the error of the original. Otherwise the results must agree within a fixed number of units in the
last place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from kernwright.diagnose.swap.argument_copies import tensors_in
from kernwright.judge.numerics.contracts import EAGER_FACTOR, ErrorFigures, Expected, compare, same_bits
from kernwright.judge.numerics.expectations import MAX_SLACK, RMS_SLACK
from kernwright.tasks.task import Tolerance

FACTOR = EAGER_FACTOR * MAX_SLACK
FALLBACK_ULPS = 8.0  # ulp of the value, or of the tensor's RMS if that is larger
ANY = Tolerance(atol=1e300, rtol=0.0)  # the fixed tolerance of a task, which a program does not have


@dataclass(frozen=True, kw_only=True)
class CheckFinding:
    """The comparison of one call: the output with the largest error relative to what is allowed."""

    problem: str = ""
    max_error: float = 0.0
    own_error: float | None = None  # error of the original, if there is an oracle
    against: str = "float64"
    output: str = ""

    def as_record(self) -> dict[str, Any]:
        return asdict(self)


def check_outputs(got: Any, expected: Any, oracle: Any, what: str) -> list[CheckFinding]:
    """Compare two results of any structure.

    Args:
        oracle: the original's result in float64, or None.
        what: `result` or `arguments`.
    """
    sides = [list(tensors_in(value)) for value in (got, expected)]
    if _shape_of(got) != _shape_of(expected):
        return [CheckFinding(problem=f"the {what} is {_shape_of(got)}, that of the original {_shape_of(expected)}")]
    oracles: Sequence[Tensor | None] = list(tensors_in(oracle)) if oracle is not None else []
    if len(oracles) != len(sides[1]):
        oracles = [None] * len(sides[1])
    return [
        _check(value, own, wide, f"{what} {number}")
        for number, (value, own, wide) in enumerate(zip(*sides, oracles, strict=True))
    ]


def _shape_of(value: Any) -> str:
    """Return the structure of a result in words: tensors with dtype and shape, in brackets."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)} on {value.device.type}"
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(_shape_of, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_shape_of(each)}' for key, each in value.items())}}}"
    return type(value).__name__


def _check(value: Tensor, own: Tensor, oracle: Tensor | None, output: str) -> CheckFinding:
    value, own = value.detach(), own.detach()
    if same_bits(value, own):
        return CheckFinding(against="the original (the same bits)", output=output)
    if not own.is_floating_point():
        count = int((value != own).sum())
        return CheckFinding(problem=f"{count} of {own.numel()} elements differ", output=output)
    if oracle is None or oracle.dtype != torch.float64 or oracle.shape != own.shape:
        return _check_without_oracle(value, own, output)
    known = Expected.of(oracle.detach(), own)
    slack = replace(known, eager_max=MAX_SLACK * known.eager_max, eager_rms=RMS_SLACK * known.eager_rms)
    found = compare(value, slack, "close", ANY)
    return CheckFinding(
        problem=_words(found.figures, known) if found.problem else "",
        max_error=found.figures.max_error,
        own_error=known.eager_max,
        output=output,
    )


def _words(figures: ErrorFigures, known: Expected) -> str:
    """Return a mismatch in words, with what is allowed."""
    return (
        f"its largest error is {figures.max_error:.3g} (RMS {figures.rms_error:.3g}), the original's own one "
        f"{known.eager_max:.3g} (RMS {known.eager_rms:.3g}); {FACTOR:g} times as much and 2 ulp are allowed "
        f"(RMS: {EAGER_FACTOR * RMS_SLACK:.3g} times and half an ulp)"
    )


def _check_without_oracle(value: Tensor, own: Tensor, output: str) -> CheckFinding:
    wide, theirs = own.double(), value.double()
    finite = torch.isfinite(wide)
    error = torch.where(finite, (theirs - wide).abs(), 0.0)
    unit = torch.finfo(own.dtype).eps * torch.maximum(wide.abs(), wide[finite].square().mean().sqrt())
    bad = ~(error <= FALLBACK_ULPS * unit) & finite
    bad |= ~finite & ~((theirs == wide) | (theirs.isnan() & wide.isnan()))
    problem = f"{int(bad.sum())} of {own.numel()} elements differ by over {FALLBACK_ULPS:g} ulp" if bad.any() else ""
    return CheckFinding(
        problem=problem, max_error=float(error.max()) if error.numel() else 0.0, against="the original", output=output
    )
