"""Forms of calls: what a promoted kernel takes, and the reason for what it does not."""

from __future__ import annotations

import pytest
import torch

from kernwright.ops.catalog import dispatcher
from kernwright.runtime.call import Call
from kernwright.runtime.promoted.call_form import CallForm, CallForms, TensorForm, size_at

BF16 = torch.bfloat16


def form(**changes: object) -> CallForm:
    """Return a form of norm_scale_shift: x `[1, S, D]` in bf16, rows for scale and shift, no weight."""
    row = {"dtype": "bf16", "shape": [1, "D"]}
    fields = {
        "tensors": {
            "x": {"dtype": "bf16", "shape": [1, "S", "D"]}, "scale": row, "shift": row, "weight": None, "bias": None,
            "gate": None,
        },
        "outputs": {"y": {"dtype": "bf16", "shape": [1, "S", "D"]}},
        "axes": {"S": {"least": 1, "most": 64}, "D": {"one_of": [256, 512]}},
        "scalars": {"norm_type": {"one_of": ["layer"]}, "eps": {"one_of": [1e-6]}},
    }  # fmt: skip
    op = dispatcher("norm_scale_shift").op
    fields["tensors"] = {own.name: fields["tensors"].get(own.name) for own in op.tensor_parameters}  # type: ignore[attr-defined]
    return CallForm.model_validate(fields | changes)


def call(tokens: int = 8, width: int = 256, dtype: torch.dtype = BF16, **more: object) -> Call:
    x = torch.empty(1, tokens, width, dtype=dtype, device="meta")
    row = torch.empty(1, width, dtype=dtype, device="meta")
    arguments = {"x": x, "scale": row, "shift": row} | more
    return Call.of(dispatcher("norm_scale_shift").op, (), arguments)


def meta(*sizes: int) -> torch.Tensor:
    return torch.empty(*sizes, dtype=BF16, device="meta")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (call(), None),
        (call(tokens=64, width=512), None),
        (call(tokens=65), "axis S is 65, judged from 1 to 64"),
        (call(width=384), "axis D is 384, judged with 256, 512"),
        (call(dtype=torch.float16), "x is fp16, judged in bf16"),
        (call(weight=meta(256)), "weight is given"),
        (call(norm_type="rms"), "norm_type is 'rms'"),
        (call(eps=1e-5), "eps is 1e-05"),
        (call(scale=meta(256)), "scale has 1 dimensions, judged with 2"),
        (call(scale=meta(2, 256)), "scale is [2, 256], judged as [1, 'D'], here [1, 256]"),
        (call(x=meta(8, 1, 256).transpose(0, 1)), None),
        (call(x=meta(1, 256, 8).transpose(1, 2)), "x has strides [2048, 1, 8], judged dense"),
        (call(x=meta(1, 8, 512)[..., :256]), "x has strides"),
    ],
)
def test_a_form_takes_the_judged_calls_only(given: Call, reason: str | None) -> None:
    found = CallForms([form()])(given)
    assert found is None if reason is None else reason in str(found)


def test_the_reason_is_that_of_the_closest_form() -> None:
    other = form(scalars={"norm_type": {"one_of": ["rms"]}, "eps": {"least": 1e-6, "most": 1e-5}})
    forms = CallForms([form(), other])
    assert forms(call(norm_type="rms", eps=5e-6)) is None
    assert "axis S is 99" in str(forms(call(tokens=99, norm_type="rms", eps=1e-6)))


def test_channels_last_and_expressions() -> None:
    own = TensorForm.model_validate({"dtype": "fp32", "shape": ["B", "C", "T+2", "F*P"], "layout": "channels_last"})
    wanted = torch.empty(2, 3, 4, 6).to(memory_format=torch.channels_last).stride()
    assert own.strides((2, 3, 4, 6)) == wanted
    assert [size_at(size, {"T": 2, "F": 2, "P": 3, "B": 2, "C": 3}) for size in own.shape] == [2, 3, 4, 6]
    assert size_at("F*Q", {"F": 2}) == -1, "an unknown axis fits no size"


def test_a_boolean_is_no_number() -> None:
    own = form(scalars={"norm_type": {"one_of": ["layer"]}, "eps": {"one_of": [1.0]}})
    assert CallForms([own])(call(eps=1)) is None
    assert CallForms([own])(call(eps=True)) is not None
