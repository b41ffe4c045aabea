"""Verification and judgement of a published baseline in real workers. The package is made up and looks like sglang."""

from __future__ import annotations

import dataclasses
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from fake_package import RIGHT, Shelf, sglang_files
from rich.console import Console
from typer.testing import CliRunner

from kernwright.cli.main import app
from kernwright.core.errors import KernwrightError
from kernwright.judge.checks.verification import FindingKind, RowFinding, verify
from kernwright.judge.contest.compiled_files import CompiledFiles
from kernwright.judge.contest.compiled_store import VARIABLE
from kernwright.judge.request import JudgeRequest, judge
from kernwright.packages.store import Store
from kernwright.report.table import findings_table
from kernwright.tasks.catalog import find_task, list_tasks

OPS = '''
import torch
from torch import Tensor

from kernwright.core.op import define
from kernwright.core.rounding import wide


@define(outputs=["y"], activations=["x"])
def rms_norm(x: Tensor, weight: Tensor, *, eps: float = 1e-6) -> Tensor:
    """x * rsqrt(mean(x^2) + eps) * weight"""
    return (wide(x) * torch.rsqrt(wide(x).pow(2).mean(-1, keepdim=True) + eps) * wide(weight)).to(x.dtype)


@define(outputs=["y"], activations=["a"])
def broadcast_add(a: Tensor, b: Tensor) -> Tensor:
    """a + b"""
    return a + b
'''
NAME = "sglang@1.0"
KEEP = ("sglang/*",)


@pytest.fixture
def norms(tmp_path: Path, write_task: Callable[..., Path], make_row: Callable[..., Any], task_texts: Any) -> Path:
    def norm(identity: str, width: int) -> dict[str, Any]:
        x = {"shape": ["S", width], "dtype": "bf16"}
        inputs = {"x": x, "weight": {"shape": [width], "dtype": "bf16"}}
        return make_row(identity, "rms_norm", inputs, {"y": x}, axes={"S": 6})  # type: ignore[no-any-return]

    add = make_row("add", "broadcast_add", {"a": [4, 8], "b": [8]}, {"y": [4, 8]})
    toml = task_texts["toml"].replace('"tiny"', '"norms"')
    return write_task(tmp_path / "norms", toml=toml, ops=OPS, rows=[norm("narrow", 64), norm("wide", 256), add])


@pytest.fixture
def findings(
    copied_wheels: None, shelf: Shelf, lock_file: Callable[..., None], norms: Path, private_tmp: Path, quiet: Any
) -> Callable[[str], dict[str, RowFinding]]:
    def run(body: str) -> dict[str, RowFinding]:
        tree = shelf.tree("sglang", sglang_files(body), keep=KEEP)
        lock_file(tree)
        Store().fetch(tree, shelf.source, lambda _: None)
        return {found.row: found for found in verify(NAME, find_task(str(norms)), "all", "cpu", quiet)}

    return run


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one processor")
def test_a_side_that_is_not_timed_may_compile_on_every_processor(
    findings: Callable[[str], dict[str, RowFinding]],
) -> None:
    """When many sides verify at once, each would otherwise wait for the compilers of all others."""
    found = findings(f"import os\n    assert len(os.sched_getaffinity(0)) > 1\n    {RIGHT}")
    assert found["narrow"].finding == "agrees", found["narrow"]


def test_later_judgements_reuse_compiled_files(
    findings: Callable[[str], dict[str, RowFinding]],
    norms: Path,
    tmp_path: Path,
    quiet: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "store"))
    laid_out: list[int] = []
    lay_out = CompiledFiles.lay_out
    monkeypatch.setattr(
        CompiledFiles, "lay_out", lambda self, chosen: (lay_out(self, chosen), laid_out.append(self.found))
    )
    findings(RIGHT)
    assert list(verify(NAME, find_task(str(norms)), "all", "cpu", quiet))
    assert laid_out[0] == 0 < laid_out[1], "the package's bytecode, where there is no GPU"


def test_every_row_agrees_or_is_declined_with_its_reason(findings: Callable[[str], dict[str, RowFinding]]) -> None:
    found = findings(RIGHT)
    assert found["narrow"].finding == "agrees", found["narrow"]
    assert (found["wide"].finding, found["wide"].reason) == ("declines", "its kernel for wide rows runs on a GPU only")
    assert found["add"].finding == "declines" and "runs the eager addition" in found["add"].reason


def test_another_result_differs(findings: Callable[[str], dict[str, RowFinding]]) -> None:
    found = findings(RIGHT.replace("+ eps", "+ 9.0"))["narrow"]
    assert found.finding == "differs", found


def test_a_crash_fails(findings: Callable[[str], dict[str, RowFinding]]) -> None:
    failed = findings("raise ValueError('no kernel image')")["narrow"]
    assert failed.finding == "failed" and "no kernel image" in failed.reason


def test_gradients_are_off_and_triton_is_interpreted(findings: Callable[[str], dict[str, RowFinding]]) -> None:
    found = findings(
        f"import os\n    assert not torch.is_grad_enabled() and os.environ['TRITON_INTERPRET']\n    {RIGHT}"
    )
    assert found["narrow"].finding == "agrees", found["narrow"]


def test_a_judgement_names_what_is_declined_and_records_the_package(
    findings: Callable[[str], dict[str, RowFinding]], norms: Path, tmp_path: Path, quiet: Any
) -> None:
    findings(RIGHT)
    request = JudgeRequest(
        task=str(norms), candidate=None, baseline=NAME, rows="all", quick=True, against_itself=True,
        ledger=tmp_path / "ledger",
    )  # fmt: skip
    verdict = judge(request, quiet)
    rows = {row.id: row for row in verdict.rows}
    assert rows["narrow"].metrics and rows["narrow"].verdict not in ("failed", "incorrect", "tampered")
    assert rows["wide"].verdict == "failed" and not rows["wide"].metrics
    assert rows["wide"].reasons == ("the baseline declines: its kernel for wide rows runs on a GPU only",)
    assert rows["add"].reasons[0].startswith("the baseline declines: ")
    assert verdict.provenance["baseline"]["ops"]["rms_norm"]["functions"]
    nothing_left = judge(dataclasses.replace(request, rows="wide"), quiet)
    assert nothing_left.verdict == "failed" and not nothing_left.rows[0].metrics


def test_a_baseline_that_breaks_on_a_row_fails_that_row(
    findings: Callable[[str], dict[str, RowFinding]], norms: Path, tmp_path: Path, quiet: Any
) -> None:
    findings("raise ValueError('no kernel image')")
    rows = {"task": str(norms), "rows": "narrow", "ledger": tmp_path / "ledger"}
    candidate = tmp_path / "candidate"
    candidate.mkdir()
    (candidate / "candidate.toml").write_text('op = "rms_norm"\nlanguage = "python"\nentry = "k.py:rms_norm"\n')
    (candidate / "k.py").write_text(
        f"import torch\ndef rms_norm(x, weight, *, eps=1e-6):\n    w = weight\n    {RIGHT}\n"
    )
    verdict = judge(JudgeRequest(candidate=candidate, baseline=NAME, quick=True, **rows), quiet)  # type: ignore[arg-type]
    assert verdict.rows[0].verdict == "failed"
    assert any(reason.startswith("the baseline failed: ") for reason in verdict.rows[0].reasons)


def test_the_command_line_fetches_lists_and_verifies(
    shelf: Shelf, lock_file: Callable[..., None], norms: Path, private_tmp: Path, tmp_path: Path
) -> None:
    lock_file(shelf.tree("sglang", sglang_files(), keep=KEEP))
    runner = CliRunner()
    fetched = runner.invoke(app, ["baseline", "fetch", NAME, "--find-links", str(shelf.folder)])
    assert fetched.exit_code == 0, fetched.output
    listed = runner.invoke(app, ["baseline", "list"])
    assert "sglang-1.0-py3-none-any.whl" in listed.output and "yes" in listed.output
    out = tmp_path / "found.json"
    verified = runner.invoke(
        app, ["baseline", "verify", NAME, "--task", str(norms), "--rows", "all", "--json", str(out)]
    )
    assert verified.exit_code == 0, verified.output
    assert sorted(found["finding"] for found in json.loads(out.read_text())) == ["agrees", "declines", "declines"]
    assert "no census on a CPU" in verified.output


def test_each_task_is_asked_for_its_part_of_a_pattern(
    norms: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word may match no row of one task; it is an error only if it matches no row of any task."""
    asked: list[tuple[str, str | None]] = []
    found = {"norms": norms, "qknorm_rope": list_tasks()["qknorm_rope"]}
    monkeypatch.setattr("kernwright.tasks.catalog.list_tasks", lambda: found)
    monkeypatch.setattr(
        "kernwright.judge.checks.verification.verify",
        lambda name, task, rows, *_: asked.append((task.folder.name, rows)) or (),
    )
    words = ["baseline", "verify", "liger@0.8.5", "--rows"]
    assert CliRunner().invoke(app, [*words, "narrow,grid"]).exit_code == 0
    assert asked == [("norms", "narrow"), ("qknorm_rope", "grid")]
    refused = CliRunner().invoke(app, [*words, "narrow,nosuch"])
    assert isinstance(refused.exception, KernwrightError) and "'nosuch'" in refused.exception.cause


def test_every_finding_can_be_shown() -> None:
    findings = [
        RowFinding(baseline="b", task="t", row=f"row_{word}", op="op", finding=word, reason="because")
        for word in get_args(FindingKind)
    ]
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(findings_table(findings, counted=True))
    shown = console.export_text()
    assert all(f"row_{word}" in shown and word in shown for word in get_args(FindingKind))
