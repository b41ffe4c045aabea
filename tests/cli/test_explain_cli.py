"""kernwright explain: shapes from the command line, for devices that are not here too."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner, Result

from kernwright.cli.main import app
from kernwright.errors import KernwrightError


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
        (["scale_shift", "--shape", "1xx3"], "--shape 1xx3: is no shape"),
        (["scale_shift", "--shape", "1x3:bf17"], "is no shape"),
        (["scale_shift", "--shape", "z=1x3", "--shape", "1x3"], "has no tensor 'z'"),
        (["scale_shift", "--shape", "1x3", "--scalar", "k=2"], "has no scalar 'k'"),
        (["scale_shift", "--shape", "1x3", "--scalar", "scale_constant=two"], "is no float"),
    ],
)
def test_what_cannot_be_asked_is_named(arguments: list[str], complaint: str) -> None:
    done = call(*arguments, "--device", "cpu")
    assert isinstance(done.exception, KernwrightError)
    assert complaint in str(done.exception)
