"""kernwright explain: shapes from the command line, also for devices that this machine does not have."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kernwright.cli.main import app
from kernwright.core.errors import KernwrightError
from kernwright.core.registry import shipped_ops
from kernwright.ops import FAMILIES
from kernwright.runtime.library import Library
from kernwright.runtime.preference import BACKENDS
from kernwright.runtime.target import Target

OPS_PAGE = Path(__file__).resolve().parents[2] / "docs" / "ops.md"


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["explain", *arguments])


def test_an_op_without_kernels_runs_its_reference() -> None:
    done = call("copy_contiguous", "--shape", "1x16x64:bf16", "--device", "cpu")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == ["copy_contiguous: torch (exact)", "  torch (exact): takes it"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["no_such_op"], "there is no op 'no_such_op'"),
        (["scale_shift"], "x has no shape"),
        (["scale_shift", "--shape", "1xx3"], "--shape 1xx3: is not a shape"),
        (["scale_shift", "--shape", "1x3:bf17"], "is not a shape"),
        (["scale_shift", "--shape", ""], "--shape : is not a shape"),
        (["scale_shift", "--shape", ":bf16"], "--shape :bf16: is not a shape"),
        (["scale_shift", "--shape", "z=1x3", "--shape", "1x3"], "has no tensor 'z'"),
        (["scale_shift", "--shape", "1x3", "--scalar", "k=2"], "has no scalar 'k'"),
        (["scale_shift", "--shape", "1x3", "--scalar", "scale_constant=two"], "is not a float"),
        (["scale_shift", "--shape", "1x3", "--backend", "cudaa"], "--backend: there is no backend 'cudaa'"),
        (["scale_shift", "--shape", "1x3", "--shape", "scale=4"], "scale: is [4], which does not broadcast over x"),
        (["scale_shift", "--shape", "1x3", "--device", "foo"], "--device foo: is not supported"),
        (["scale_shift", "--shape", "1x3", "--device", "cuda:x"], "use cpu, cuda, cuda:1, mps or xpu"),
        (["add_norm", "--shape", "4x8", "--scalar", "wide=1"], "it has: norm_type, eps, residual_in_fp32"),
    ],
)
def test_what_cannot_be_asked_is_named(arguments: list[str], complaint: str) -> None:
    done = call(*arguments, *([] if "--device" in arguments else ["--device", "cpu"]))
    assert isinstance(done.exception, KernwrightError)
    assert complaint in str(done.exception)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("op", sorted(FAMILIES))
def test_one_shape_is_enough_for_every_op_on_every_device(
    op: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    # Video for the ops that need it.
    shape = "2x8x4x16x16:bf16" if op in {"causal_cat_pad", "wan_rmsnorm_silu"} else "2x64x128:bf16"
    done = call(op, "--shape", shape, "--device", device, "--exact")
    assert done.exit_code == 0, done.exception
    told = done.output.splitlines()
    assert told[0] == f"{op}: torch (exact)" or "cpu" in told[0]
    if device == "cuda" and len(told) > 2:
        assert f"  cuda ({shipped_ops()[op].contract}): " in done.output
        assert "torch sees no CUDA device" in done.output or "is close, where exact" in done.output
    asks_no_more = "Further requirements of the kernels" in done.output
    assert asks_no_more is ("torch sees no CUDA device" in done.output)


def test_arguments_of_the_public_call_alone_can_be_explained() -> None:
    done = call("add_norm", "--shape", "4x8:bf16", "--scalar", "residual_in_fp32=true", "--device", "cpu")
    assert done.exit_code == 0 and "add_norm: torch (exact)" in done.output, done.exception


@pytest.mark.parametrize("device", ["mps", "xpu", "xpu:1"])
def test_other_devices_have_only_the_reference(device: str) -> None:
    done = call("norm_scale_shift", "--shape", "1x16x64:bf16", "--device", device)
    assert done.exit_code == 0, done.exception
    assert done.output.splitlines()[0] == "norm_scale_shift: torch (exact)"
    *kernels, reference = done.output.splitlines()[1:]
    assert len(kernels) > 2 and all(f"): x is on {device.partition(':')[0]}" in line for line in kernels)
    assert reference == "  torch (exact): takes it"


def test_a_device_that_exists_is_not_queried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.is_current_stream_capturing", lambda: pytest.fail("there is no stream"))
    monkeypatch.setattr("kernwright.ops._shared.implementations.architecture", lambda device: Target("sm_90"))
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "NVIDIA H200")
    monkeypatch.setattr(Library, "unavailable", lambda own, target: None)
    monkeypatch.setattr(Library, "build", lambda *given: pytest.fail("a library was built"))
    for op, name in (("norm_scale_shift", "x"), ("rms_modulate", "x")):
        done = call(op, "--shape", f"{name}=2x64x128:bf16", "--device", "cuda:1", "--exact")
        assert done.exit_code == 0, done.exception
        assert done.output.startswith(f"{op}: torch (exact)")
        assert "cuda (exact): x stands for a tensor that is not here" in done.output
        done = call(op, "--shape", "2x64x128:bf16", "--device", "cuda:1")
        assert done.output.startswith(f"{op}: cuda (close)"), done.exception
        done = call(op, "--shape", "2x64x128:bf16", "--device", "cuda:2")
        assert "cuda (close): torch sees 2 CUDA device(s), and no cuda:2" in done.output


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("op", ["norm_scale_shift", "dual_modulate_from_table", "rotary"])
def test_a_backend_that_cannot_run_is_explained_too(op: str, backend: str) -> None:
    for device in ("cpu", "cuda"):
        done = call(op, "--shape", "2x64x128:bf16", "--device", device, "--backend", backend)
        assert done.exit_code == 0, done.exception
        assert f"as {backend} is preferred" in done.output.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["scale_shift", "--shape", "2x6x16:fp16", "--shape", "scale=:fp64"], "triton (exact): scale is torch.float64"),
        (["scale_shift", "--shape", "2x6x16:fp16", "--shape", "scale=:fp32"], "triton (exact): takes it"),
        (["norm_scale_shift_select", "--shape", "2x6x16", "--shape", "index=2x6:u8"], "triton (close): takes it"),
        (["norm_scale_shift_select", "--shape", "2x6x16", "--shape", "index=:i16"], "triton (close): takes it"),
        (["rms_norm", "--shape", "x="], "x: has no dimension to norm over"),
    ],
)
def test_numbers_and_narrow_indices_can_be_asked_about(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # so that tensors of a CPU are no reason to refuse
    done = call(*arguments, "--device", "cpu")
    assert said in (str(done.exception) if done.exception else done.output)


def test_the_example_of_the_docs() -> None:
    shapes = ("--shape", "x=1x4096x3072:bf16", "--shape", "scale=1x3072")
    done = call("norm_scale_shift", *shapes, "--device", "cuda")
    assert done.exit_code == 0, done.exception
    assert " ".join(("kernwright explain norm_scale_shift", *shapes, "--device cuda")) in OPS_PAGE.read_text()
