"""Shipped ops are judged like any candidate: by their public call, under their contract, and with fallbacks
reported."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kernwright
from kernwright.baselines.lookup import find_contender
from kernwright.baselines.shipped import Shipped
from kernwright.campaign.sweep import Sweep, legs_of
from kernwright.core.errors import KernwrightError
from kernwright.judge.contest.contestant import Contestant
from kernwright.judge.contest.shipped_build import ShippedBuild
from kernwright.judge.contest.worker_spec import shipped_spec
from kernwright.judge.process.answers import accept_answer
from kernwright.judge.process.faults import WorkerCheated
from kernwright.judge.record.verdict import RanImplementation, Verdict
from kernwright.judge.request import JudgeRequest, judge
from kernwright.judge.session.session import Session
from kernwright.ledger.ledger import Ledger
from kernwright.tasks.task import Task, load_task

PACKAGE = Path(kernwright.__file__).parent


@pytest.fixture
def task(swept_ops: Path) -> Task:
    return load_task(swept_ops / "tasks" / "ours")


@pytest.fixture
def verdicts(swept_ops: Path) -> dict[str, Verdict]:
    """Return the verdicts against eager, by the op of their row."""
    bodies = [record.body for record in Ledger(swept_ops / "ledger").all_records() if record.kind == "verdict"]
    found = [Verdict.model_validate(body) for body in bodies if body["baseline"] == "eager"]
    return {row.op: verdict for verdict in found for row in verdict.rows}


def test_the_verdict_has_the_provenance_of_the_shipped_ops(verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts["norm_scale_shift"]
    assert (verdict.candidate, verdict.candidate_digest) == ("kernwright", Shipped(("norm_scale_shift",)).digest)
    (row,) = verdict.rows
    assert row.verdict not in ("incorrect", "failed", "tampered"), row.reasons
    assert row.cases > 8, "every distribution and every neighbour, as for any candidate"
    assert row.ran is not None and (row.ran.backend, row.ran.contract) == ("cpu", "close")
    about = verdict.provenance["contender"]
    (library,) = about["libraries"]
    assert library.startswith("norm_modulation-cpu-") and about["loaded"] == [library]
    assert verdict.provenance["sources"]["ops/norm_modulation/cpu.cc"]


def test_a_fallback_is_reported(verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts["scale_shift"]
    (row,) = verdict.rows
    assert row.ran is not None and row.ran.fell_back
    assert any("cuda (exact): x is on cpu" in reason for reason in row.reasons)
    assert any("reference" in reason and "1 of 1 rows" in reason for reason in verdict.reasons)


def test_ops_without_kernels_are_left_out_and_nothing_is_judged_twice(swept_ops: Path, task: Task) -> None:
    legs = list(legs_of([task], "eager", ["kernwright"], "cpu"))
    assert [[row.id for row in leg.rows("smoke")] for leg in legs] == [[], ["scaled"], ["normed"]], "one a family"
    left_out = {row.id: why for leg in legs for row in task.rows if (why := leg.skipped(row))}
    assert left_out == {"copied": "kernwright has no implementation of copy_contiguous yet"}
    sweep = Sweep(legs=legs, rows="smoke", device="cpu", ledger=swept_ops / "ledger")
    assert [sweep.outstanding(leg) for leg in legs] == [[], [], []]
    with pytest.raises(KernwrightError, match="no implementation of copy_contiguous"):
        judge(JudgeRequest(task=str(task.folder), candidate=None, contender="kernwright", rows="copied"), None)  # type: ignore[arg-type]


def test_a_tasks_own_ops_have_no_shipped_implementation(tiny_folder: Path) -> None:
    shipped = find_contender(load_task(tiny_folder), "kernwright")
    assert isinstance(shipped, Shipped) and shipped.ops == ()


def test_it_is_not_trusted_and_kept_to_odd_sizes(task: Task) -> None:
    contestant = Contestant.of_contender(Shipped.of(task))
    assert not contestant.trusted and not contestant.at_frozen_sizes


@pytest.mark.parametrize(
    ("backend", "kernels", "fails"),
    [
        ("cuda", ["void kernwright::(anonymous namespace)::held<8>(kernwright::Problem)"], False),
        ("cuda", ["void at::native::elementwise_kernel<128, 2>"], True),
        ("triton", ["norm_modulate"], False),
        ("triton", ["void at::native::elementwise_kernel<128, 2>", "Memcpy DtoD"], True),
        ("torch", ["void at::native::elementwise_kernel<128, 2>"], False),
        ("cuda", None, False),
    ],
)
def test_a_census_without_our_kernel_is_detected(
    task: Task, backend: str, kernels: list[str] | None, fails: bool
) -> None:
    contestant = Contestant.of_contender(Shipped.of(task))
    assert bool(contestant.ran_else("norm_scale_shift", kernels, backend)) is fails


@pytest.mark.parametrize(
    "answer", [{}, {"backend": "cuda"}, {"backend": "cuda", "contract": "close", "refused": 3}, {"backend": "c" * 99}]
)
def test_a_worker_that_explains_itself_otherwise_cheats(answer: dict[str, Any]) -> None:
    session = Session.__new__(Session)
    session.worker = SimpleNamespace(  # type: ignore[assignment]
        request=lambda message, kind, *_: accept_answer(kind, answer)
    )
    with pytest.raises(WorkerCheated):
        session.implementation()
    answer |= {"backend": "cuda", "contract": "close", "refused": ["\x1b[31m" + "x" * 999]}
    assert session.implementation().refused == ("?[31m" + "x" * 295,)


def test_triton_instead_of_cuda_is_reported() -> None:
    refused = ("cuda (close): there is no nvcc", "cpu (close): x is on cuda:0")
    said = RanImplementation(backend="triton", contract="close", refused=refused).fallback_note
    assert said == "triton ran: cuda (close): there is no nvcc"
    assert RanImplementation(backend="cuda", contract="close").fallback_note is None
    assert RanImplementation(backend="cpu", contract="close", refused=refused[:1]).fallback_note is None


def test_a_worker_reads_copies_of_the_libraries_and_missing_ones_are_reported(tmp_path: Path) -> None:
    library = tmp_path / "cache" / "some-sm_90-0123.so"
    library.parent.mkdir(mode=0o700)
    library.write_bytes(b"machine code")
    library.with_name(library.name + ".sha256").write_text("its checksum")
    ready = ShippedBuild(
        target="sm_90", backends={"a": ("cuda",)}, libraries=(library,), unbuilt={"other": "there is no nvcc"}
    )
    side = shipped_spec(ready, tmp_path / "side")
    (builds,) = side.reads
    assert side.environment["KERNWRIGHT_BUILDS"] == str(builds)
    assert (builds / library.name).read_bytes() == b"machine code" and len(list(builds.iterdir())) == 2
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in (builds, *builds.iterdir()))
    assert ready.about(["a", "b"])["unbuilt"] == {"other": "there is no nvcc"}
    assert "b" in ready.about(["a", "b"])["skipped"]


@pytest.mark.slow
def test_a_broken_implementation_is_incorrect(swept_ops: Path, tmp_path: Path) -> None:
    """Judge, by the command, a copy of the package that hands two arguments to its kernel in the wrong order."""
    copy = shutil.copytree(PACKAGE, tmp_path / "src" / "kernwright", ignore=shutil.ignore_patterns("__pycache__"))
    family = copy / "ops" / "norm_modulation" / "family.py"
    right = "function(*arguments, threads())"
    wrong = "function(arguments[0], arguments[2], arguments[1], *arguments[3:], threads())"
    assert family.read_text().count(right) == 1
    family.write_text(family.read_text().replace(right, wrong))
    command = [
        sys.executable, "-m", "kernwright", "judge", swept_ops / "tasks" / "ours", "--candidate", "kernwright",
        "--rows", "normed", "--quick", "--ledger", tmp_path / "ledger", "--json", tmp_path / "verdict.json",
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "src"), "KERNWRIGHT_LOCKS": str(tmp_path)}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    verdict = Verdict.model_validate_json((tmp_path / "verdict.json").read_text())
    assert verdict.verdict == "incorrect"
    assert verdict.candidate_digest != Shipped(("norm_scale_shift",)).digest
