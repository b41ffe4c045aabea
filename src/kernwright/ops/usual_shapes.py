"""The usual shapes of an op's other tensors for a given first tensor.

`kernwright explain` needs them if only one shape is given. An unlisted tensor that carries data has the sizes of the
first tensor. An unlisted tensor that modulates has the last size of the first tensor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kernwright.core.op import Op

_SETS = ("scale0", "shift0", "gate0", "scale1", "shift1", "gate1")
_PICKED = {**dict.fromkeys(_SETS, "B D"), "index": "B S :i32"}
_SPLIT = ("q_cos", "q_sin", "k_cos", "k_sin")  # rotations of one head, as wide as the token


@dataclass(frozen=True)
class UsualShapes:
    """The axes of an op's first tensor by name, and the sizes of other tensors in terms of these: `4*D`, `D/2`,
    optionally with a dtype.

    If a first tensor has fewer axes, the leading ones are 1. If its list of axes ends in dots, the trailing ones are 1.
    """

    axes: str = "B S D"
    others: Mapping[str, str] = field(default_factory=dict)

    def sizes(self, first: Sequence[int]) -> dict[str, int]:
        names = self.axes.split()
        if names[-1] == "...":
            return dict.fromkeys(names, 1) | dict(zip(names[:-1], first, strict=False))
        return dict.fromkeys(names, 1) | dict(zip(reversed(names), reversed(first), strict=False))

    def of(self, name: str, first: Sequence[int]) -> tuple[list[int], str | None] | None:
        """Return the sizes and the dtype of a listed tensor, or None."""
        if name not in self.others:
            return None
        sizes, _, dtype = self.others[name].partition(":")
        known = self.sizes(first)
        return [_size(own, known) for own in sizes.split()], dtype or None


USUAL: dict[str, UsualShapes] = {
    "norm_scale_shift_select": UsualShapes(others=_PICKED),
    "residual_norm_scale_shift_select": UsualShapes(others=_PICKED),
    "dual_modulate_from_table": UsualShapes(others={"temb_scale_shift": "B 1 4*D", "scale_shift_table": "4 D"}),
    "rms_modulate_from_table": UsualShapes(others={"temb_scale_shift": "B 1 2*D", "scale_shift_table": "2 D"}),
    "qknorm_rope": UsualShapes("T H D", {"cos_sin_cache": "T D :fp32", "positions": "T :i64"}),
    "rotary": UsualShapes("B S H D", dict.fromkeys(("cos", "sin"), "S D/2 :fp32")),
    "ltx2_split_rotary": UsualShapes(others=dict.fromkeys(("cos", "sin"), "B 1 S D/2")),
    "ltx2_qknorm_split_rope": UsualShapes(others=dict.fromkeys(_SPLIT, "B 1 S D/2")),
    "group_norm_silu": UsualShapes("B C ...", dict.fromkeys(("weight", "bias"), "C")),
    "wan_rmsnorm_silu": UsualShapes("B C ...", {"gamma": "C 1 1 1"}),
}


def usual_shape(op: Op, name: str, first: Sequence[int]) -> tuple[list[int], str | None]:
    """Return the sizes and the dtype of a tensor that goes with a first tensor of these sizes.

    A dtype of None means that of the first tensor.
    """
    if own := USUAL.get(op.name, UsualShapes()).of(name, first):
        return own
    return list(first) if name in op.activations else list(first[-1:]), None


def _size(word: str, known: Mapping[str, int]) -> int:
    if word.isdecimal():
        return int(word)
    found = re.fullmatch(r"(?:(\d+)\*)?(\w+)(?:/(\d+))?", word)
    assert found is not None, word
    return int(found[1] or 1) * known[found[2]] // int(found[3] or 1)
