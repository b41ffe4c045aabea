"""The whole judge on a tiny task: honest, wrong, slow and broken candidates, and every refusal."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kernwright.cli.main import app
from kernwright.core.errors import KernwrightError
from kernwright.judge.device.cpu import CpuDevice
from kernwright.judge.record.provenance import judge_digest
from kernwright.judge.record.recompute import recompute
from kernwright.judge.record.round_record import recorded_samples
from kernwright.judge.record.sample import Sample
from kernwright.judge.record.verdict import (
    INTERPRETED,
    UNTIMED,
    Headline,
    MetricResult,
    RowVerdict,
    Unavailable,
    Verdict,
)
from kernwright.judge.request import JudgeRequest, judge
from kernwright.judge.session.session import Session
from kernwright.ledger.ledger import Ledger
from kernwright.ledger.verify import verify

pytestmark = pytest.mark.slow

HONEST = "import torch\ndef axpy(x, w, *, alpha=2.0):\n    return torch.add(w, x, alpha=alpha)\n"
WRITES = "import torch\ndef axpy(x, w, *, alpha=2.0, out):\n    torch.add(w, x, alpha=alpha, out=out)\n"
WRONG = "def axpy(x, w, *, alpha=2.0):\n    return alpha * x + w * 1.001\n"
SLOW = "def axpy(x, w, *, alpha=2.0):\n    for _ in range(200):\n        y = alpha * x + w\n    return y\n"
OTHER_NAME = "def axpby(x, w, *, alpha=2.0):\n    return alpha * x + w\n"
NOTHING_WHILE_SIZED = """
import torch

one_slot = []

def axpy(x, w, *, alpha=2.0):
    memory = x.untyped_storage().nbytes()
    if x.shape == (6, 64):
        one_slot[:] = one_slot or [memory]
        if 1.5 < memory / one_slot[0] < 2.5:
            return torch.empty_like(x)
    return alpha * x + w
"""
RAISES = """
import ctypes, sys
print("loaded", end="")

def helper(x):
    ctypes.CDLL(None).printf(b" from C")
    print(" and stderr", end="", file=sys.stderr)
    raise ValueError("no such shape\\x1b[2J")

def axpy(x, w, *, alpha=2.0):
    return helper(x)
"""
SIGNATURE = "def axpy(x, *, alpha=2.0):\n    return alpha * x\n"
CPP = """
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
namespace ffi = tvm::ffi;
void axpy(ffi::TensorView x, ffi::TensorView w, double alpha, ffi::TensorView y) {
  const float* in = static_cast<const float*>(x.data_ptr());
  const float* add = static_cast<const float*>(w.data_ptr());
  float* out = static_cast<float*>(y.data_ptr());
  const int64_t width = w.numel();
  for (int64_t i = 0; i < x.numel(); ++i) out[i] = static_cast<float>(alpha) * in[i] + add[i % width];
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(axpy, axpy);
"""
BROKEN_CPP = CPP.replace("float* out =", "flaot* out =")
BAD = {"incorrect", "tampered", "failed"}


@pytest.fixture(scope="module")
def run(
    tiny_folder: Path,
    private_tmp: Path,
    tmp_path_factory: pytest.TempPathFactory,
    write_candidate: Callable[..., Path],
    quiet: Any,
) -> Callable[..., Verdict]:
    """Judge a source in this process, with one ledger for the whole module."""
    folder = tmp_path_factory.mktemp("judged")

    def run(name: str, source: str | None, language: str = "python", more: str = "", **request: Any) -> Verdict:
        candidate = write_candidate(folder / name, source, language=language, more=more) if source else None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("kernwright.judge.request.hide_judge", lambda: "not hidden: a test's process")
            fields = {"task": str(tiny_folder), "rows": "axpy_small", "ledger": folder / "ledger"} | request
            return judge(JudgeRequest(candidate=candidate, **fields), quiet)

    run.ledger = folder / "ledger"  # type: ignore[attr-defined]
    return run


@pytest.fixture(scope="module")
def honest(run: Callable[..., Verdict]) -> Verdict:
    return run("honest", HONEST, rows="axpy_*", seed=7)


def first_reason(verdict: Verdict) -> str:
    (row,) = verdict.rows
    return row.reasons[0]


# Honest candidates


def test_an_honest_candidate_is_correct_on_every_row(honest: Verdict) -> None:
    assert [row.id for row in honest.rows] == ["axpy_small", "axpy_wide"]
    assert honest.verdict not in BAD, honest.reasons
    assert honest.candidate == "honest"
    for row in honest.rows:
        assert row.verdict not in BAD, row.reasons
        assert row.deterministic is True
        assert row.cases > 7
        assert row.errors["y"]["max_error"] is not None
        assert row.fastest_copy_us is not None and row.fastest_copy_us > 0


def test_every_metric_is_a_figure_or_a_reason(honest: Verdict) -> None:
    for row in honest.rows:
        assert set(row.metrics) == {"wall", "stream", "device"}
        for metric in ("wall", "stream"):
            result = row.metrics[metric]  # type: ignore[index]
            assert isinstance(result, MetricResult)
            assert result.interval[0] <= result.ratio <= result.interval[1]
            assert result.noise_band >= 0.0099
            assert result.baseline_us > 0 and result.candidate_us > 0
        assert isinstance(row.metrics["device"], Unavailable), "Python has no loop without Python"
    stream, device = honest.headline["stream"], honest.headline["device"]
    assert isinstance(stream, Headline) and isinstance(device, Unavailable)
    assert stream.rows == 2
    ratios = {r.id: r.metrics["stream"].ratio for r in honest.rows}  # type: ignore[union-attr]
    if not stream.in_doubt:  # A busy machine can leave a gain unconfirmed, which then counts for less.
        assert stream.geomean == pytest.approx((ratios["axpy_small"] * ratios["axpy_wide"]) ** 0.5)
        assert stream.worst_row == min(ratios, key=ratios.__getitem__)
        assert stream.worst_ratio == min(ratios.values())


def test_the_record_has_its_provenance(honest: Verdict) -> None:
    where = honest.provenance
    assert where["seed"] == 7
    assert where["policy"]["quads_per_round"] == 7
    assert where["started"] <= where["finished"]
    assert where["judge"] == judge_digest()
    assert (
        set(where["seconds"])
        == {"workers", "build", "first calls", "correctness", "timing", "census", "end of workers"}
        and min(where["seconds"].values()) > 0
    )
    sandbox = where["isolation"]["workers"]
    assert sandbox["dies_with_judge"] is True and sandbox["no_new_privileges"] is True
    assert isinstance(sandbox["missing"], list) and all(": " in wall for wall in sandbox["missing"])
    assert sandbox["user"].endswith("used by no other process") != any(
        "a user of its own" in wall for wall in sandbox["missing"]
    )
    assert {"kernel.py", "candidate.toml", "op axpy"} <= set(where["sources"])
    assert where["libraries"]["torch"]
    assert where["hardware"]["kind"] == "cpu"
    assert not honest.evidence, "a seed was given: whoever knows it knows the inputs"
    assert not honest.quick and not honest.interrupted


def test_a_verdict_on_an_unchecked_task_says_so(honest: Verdict) -> None:
    assert honest.not_admitted == "it was never checked"


def test_the_schemas_fields_are_all_there_in_json(honest: Verdict) -> None:
    data = json.loads(honest.model_dump_json())
    assert set(data) == set(Verdict.model_fields)
    assert all(set(row) == set(RowVerdict.model_fields) for row in data["rows"])
    assert set(data["rows"][0]["metrics"]["stream"]) == set(MetricResult.model_fields)
    assert set(data["headline"]["stream"]) == set(Headline.model_fields)
    assert Verdict.model_validate(data) == honest


def samples_of_last_run(ledger: Path, row: str) -> list[Sample]:
    book = Ledger(ledger)
    records = book.records(book.runs()[-1])
    return recorded_samples(book, records, Verdict.model_validate(records[-1].body))[row]


def test_records_land_in_the_ledger_and_samples_in_its_blobs(honest: Verdict, run: Any) -> None:
    ledger = Ledger(run.ledger)
    records = next(r for r in map(ledger.records, ledger.runs()) if r[-1].body.get("candidate") == "honest")
    assert [record.kind for record in records][1:] == ["correctness", "round", "verdict"]
    assert records[-1].body == honest.model_dump(mode="json")
    assert verify(run.ledger) == []
    samples = recorded_samples(ledger, records, honest)
    assert samples.keys() == {row.id for row in honest.rows}
    assert all(
        sample.ns_per_call.keys() == {"baseline", "again", "candidate"} for own in samples.values() for sample in own
    )


@pytest.mark.parametrize(
    ("name", "source", "language", "more"),
    [("writes", WRITES, "python", 'style = "writes"'), ("cpp", CPP, "cpp", "")],
)
def test_candidates_that_write_are_correct_too(
    run: Callable[..., Verdict], name: str, source: str, language: str, more: str
) -> None:
    verdict = run(name, source, language, more)
    assert verdict.verdict not in BAD, verdict.reasons
    if language == "cpp":
        assert isinstance(verdict.rows[0].metrics["device"], MetricResult)


# Candidates that are not good enough


def test_a_wrong_candidate_is_incorrect_and_not_timed(run: Callable[..., Verdict]) -> None:
    verdict = run("wrong", WRONG)
    assert (verdict.verdict, verdict.exit_status) == ("incorrect", 1)
    assert "normal inputs, S=6 D=64" in first_reason(verdict)
    assert verdict.rows[0].metrics == {}
    assert verdict.reasons[0].startswith("axpy_small: ")


def test_a_candidate_that_seems_fast_while_blocks_are_sized_must_be_right_too(run: Callable[..., Verdict]) -> None:
    """Otherwise it would have several times as many calls per block as its baseline, and less cost for starting
    blocks."""
    verdict = run("sized", NOTHING_WHILE_SIZED)
    assert verdict.verdict == "incorrect" and "call 1 of a timed block: y is wrong" in first_reason(verdict)
    assert verdict.rows[0].metrics == {}


@pytest.mark.clock
def test_a_slower_candidate_is_slower(run: Callable[..., Verdict]) -> None:
    verdict = run("slow", SLOW)
    assert (verdict.verdict, verdict.exit_status) == ("slower", 1)
    result = verdict.rows[0].metrics["stream"]
    assert isinstance(result, MetricResult) and result.interval[1] < 1


@pytest.mark.parametrize(
    ("name", "source", "language", "said"),
    [
        ("broken_build", BROKEN_CPP, "cpp", "the build failed"),
        ("other_name", OTHER_NAME, "python", "kernel.py has no function 'axpy'"),
        ("signature", SIGNATURE, "python", "wrong signature"),
        ("syntax", "def axpy(:\n", "python", "SyntaxError"),
    ],
)
def test_a_candidate_that_cannot_be_called_failed_for_one_clear_reason(
    run: Callable[..., Verdict], name: str, source: str, language: str, said: str
) -> None:
    verdict = run(name, source, language, rows="axpy_*")
    assert (verdict.verdict, verdict.exit_status) == ("failed", 1)
    assert [row.verdict for row in verdict.rows] == ["failed", "failed"]
    for row in verdict.rows:
        assert len(row.reasons) == 1
        assert said in row.reasons[0]
    if language == "cpp":
        assert "flaot" in verdict.rows[0].reasons[0], "the compiler's own words"


def test_an_exception_is_shown_with_its_place_and_the_output(run: Callable[..., Verdict]) -> None:
    """Output of Python and of C, without a newline and without a flush, because workers are killed at the end."""
    printed: list[str] = []
    verdict = run("raises", RAISES, output=printed.append, quick=True)
    message, *frames = first_reason(verdict).split("\n")
    assert message.startswith("ValueError: no such shape?[2J [normal inputs")
    assert [frame.split(": ", 1)[0].strip() for frame in frames] == [
        "at kernel.py:11 in axpy",
        "at kernel.py:8 in helper",
    ]
    assert "loaded from C and stderr" in printed
    assert verdict.run in Ledger(run.ledger).runs()  # type: ignore[attr-defined]


def test_the_baseline_against_itself_is_neither_wrong_nor_named_a_candidate(run: Callable[..., Verdict]) -> None:
    verdict = run("itself", None, against_itself=True)
    assert verdict.verdict not in BAD
    assert verdict.candidate == verdict.baseline == "eager"
    assert verdict.candidate_digest == verdict.baseline_digest


def test_in_place_and_exact_rows_are_judged(run: Callable[..., Verdict]) -> None:
    verdict = run("itself", None, against_itself=True, rows="*ate", quick=True)
    assert {row.op for row in verdict.rows} == {"accumulate", "negate"}
    assert all(row.verdict not in BAD for row in verdict.rows), verdict.reasons


def test_quick_is_marked_and_is_no_evidence(run: Callable[..., Verdict], honest: Verdict) -> None:
    verdict = run("quick", HONEST, quick=True)
    assert verdict.quick and not verdict.evidence
    assert verdict.verdict not in BAD
    assert verdict.rows[0].cases == honest.rows[0].cases, "it saves time on timing only"
    assert honest.rows[0].process_calls and not verdict.rows[0].process_calls, "it makes no long run"


UNDECIDABLE = """
[timing]
block_ms = 0.5
quads_per_round = 4
first_look = 2
max_rounds = 4
row_budget_s = 600.0
band_floor = 0.9
same_margin = 1e-9
"""


@pytest.fixture
def undecidable_folder(tiny_folder: Path, tmp_path: Path) -> Path:
    folder = shutil.copytree(tiny_folder, tmp_path / "undecidable")
    toml = (folder / "task.toml").read_text()
    (folder / "task.toml").write_text(toml[: toml.index("[timing]")] + UNDECIDABLE)
    return folder


@pytest.mark.clock
def test_on_a_restless_machine_an_undecided_row_starts_over_with_longer_blocks(
    run: Any, undecidable_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernwright.judge.rounds.sizing.spread", lambda _: 1e9)  # one second between two empty blocks
    monkeypatch.setattr(CpuDevice, "max_slots", 4096)
    asked: list[int] = []
    opened = Session.__init__
    monkeypatch.setattr(Session, "__init__", lambda self, *a: asked.append(a[-1]) or opened(self, *a))  # type: ignore[func-returns-value]
    (row,) = run("itself", None, against_itself=True, task=str(undecidable_folder)).rows
    assert row.verdict == "inconclusive"
    lengths = {(sample.metric, sample.round): sample.longer for sample in samples_of_last_run(run.ledger, "axpy_small")}
    assert lengths["stream", 1] == lengths["device", 1] == 1.0
    assert ("stream", 3) in lengths, row.reasons
    assert 3 < lengths["stream", 2] == lengths["stream", 3] < 5, "four times, in whole calls"
    assert row.metrics["stream"].quads == 8  # type: ignore[union-attr]
    cases, probes, timed = asked[:4], asked[4:6], asked[6:]
    assert set(cases) == {1} and set(probes) == {2}, asked
    assert timed[-2] > 3 * timed[0], (
        f"the last round's last side, ahead of the audit of a call, over the first: {asked}"
    )


def test_a_row_has_no_more_rounds_than_it_is_given(
    run: Any, undecidable_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernwright.judge.rounds.sizing.spread", lambda _: 0.0)  # no row starts over
    verdict = run("itself", None, against_itself=True, task=str(undecidable_folder), rounds=2)
    assert verdict.provenance["rounds"] == 2 and verdict.evidence
    (row,) = verdict.rows
    assert row.verdict == "inconclusive"
    assert "undecided after the 2 rounds that were requested" in row.reasons
    assert {sample.round for sample in samples_of_last_run(run.ledger, "axpy_small")} == {0, 1}


def test_fewer_rounds_than_the_first_look_takes_are_refused(run: Any, undecidable_folder: Path) -> None:
    before = Ledger(run.ledger).runs()
    with pytest.raises(KernwrightError, match=r"at least 2, .*got 1"):
        run("itself", None, against_itself=True, task=str(undecidable_folder), rounds=1)
    assert Ledger(run.ledger).runs() == before


def test_requesting_the_rounds_of_the_policy_changes_nothing(run: Callable[..., Verdict]) -> None:
    verdict = run("itself", None, against_itself=True, rounds=1)
    assert verdict.provenance["rounds"] is None
    assert not any("rounds that were requested" in reason for reason in verdict.rows[0].reasons)


# Rows of a grid, and baselines as contenders

GRID = {
    "id": "grid", "op": "axpy", "axes": {"S": [1, 3], "D": [8, 9]}, "dtypes": ["fp32"],
    "inputs": {"x": {"shape": ["S", "D"], "dtype": "*"}, "w": {"shape": ["D"], "dtype": "*"}},
    "outputs": {"y": {"shape": ["S", "D"], "dtype": "*"}},
}  # fmt: skip


@pytest.fixture
def grid_folder(tiny_folder: Path, tmp_path: Path) -> Path:
    folder = shutil.copytree(tiny_folder, tmp_path / "with_grid")
    (folder / "grid.jsonl").write_text(json.dumps(GRID) + "\n")
    return folder


def test_rows_of_a_grid_are_checked_and_never_timed(run: Callable[..., Verdict], grid_folder: Path) -> None:
    verdict = run("gridded", HONEST, rows="grid", task=str(grid_folder))
    assert len(verdict.rows) == 4 and verdict.verdict == "inconclusive"
    assert all(row.cases > 0 and row.metrics == {} and row.reasons == (UNTIMED,) for row in verdict.rows)
    assert "correct on 4 rows of the grid, which are not timed" in verdict.reasons
    assert not any("undecided" in reason for reason in verdict.reasons)


def test_a_candidate_that_is_wrong_on_a_grid_is_incorrect(run: Callable[..., Verdict], grid_folder: Path) -> None:
    """The candidate is right on every frozen size and its neighbours, and wrong for a single row."""
    source = HONEST.replace("def axpy(", "def right(") + (
        "\n\ndef axpy(x, w, **scalars):\n    y = right(x, w, **scalars)\n    return y * 2 if x.shape == (3, 9) else y\n"
    )
    verdict = run("grid_wrong", source, rows="grid_S3*", task=str(grid_folder))
    assert verdict.verdict == "incorrect"
    assert {row.id: row.verdict for row in verdict.rows} == {
        "grid_S3_D8_fp32": "inconclusive",
        "grid_S3_D9_fp32": "incorrect",
    }


def test_a_contender_is_a_baseline_in_a_candidates_place(run: Callable[..., Verdict]) -> None:
    verdict = run("contender", None, contender="eager", quick=True)
    assert (verdict.candidate, verdict.baseline) == ("eager", "eager")
    with pytest.raises(KernwrightError, match="--contender"):
        run("both", HONEST, contender="eager")
    with pytest.raises(KernwrightError, match="leave out --candidate and --contender"):
        run("twice", None, contender="eager", against_itself=True)
    with pytest.raises(KernwrightError, match="--candidate"):
        run("none", None)


SCRIBBLES = """
import os, tempfile
import torch
import triton.language as tl

assert tempfile.gettempdir() == os.environ["TMPDIR"], tempfile.gettempdir()
assert type(tl.sum).__name__ == "InterpretedFunction", "Triton was imported before this side's environment was there"


def axpy(x, w, *, alpha=2.0):
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"of its own")
    return torch.add(w, x, alpha=alpha)
"""


# Without vectors and precompiled headers Inductor builds in seconds: trying instruction sets takes 10 in each worker.
BUILDS_FAST = """
import torch._inductor.config

torch._inductor.config.cpp.vec_isa_ok = False
torch._inductor.config.cpp_cache_precompile_headers = False
"""


def test_with_a_compiled_baseline_each_worker_has_its_own_folders(
    run: Callable[..., Verdict], write_task: Callable[..., Path], tmp_path: Path, task_texts: dict[str, str]
) -> None:
    """The process from which workers are forked has imported nothing that remembers its folders."""
    one_size = task_texts["toml"].replace('neighbours = ["S"]\n', "")
    task = write_task(tmp_path / "task", toml=one_size, ops=task_texts["ops"] + BUILDS_FAST)
    source = "\n".join(line for line in SCRIBBLES.splitlines() if "tl" not in line)
    verdict = run("scribbles_timed", source, baseline="compile", quick=True, task=str(task))
    assert verdict.verdict not in BAD, first_reason(verdict)
    assert all(row.metrics for row in verdict.rows)


def test_an_interpreted_candidate_imports_triton_in_its_own_worker_and_is_not_timed(
    run: Callable[..., Verdict],
) -> None:
    verdict = run("scribbles", SCRIBBLES, language="triton", quick=True)
    assert verdict.verdict not in BAD, first_reason(verdict)
    # A CPU interprets Triton kernels, so they are checked and not timed.
    assert verdict.verdict == "inconclusive" and any("--device cuda" in reason for reason in verdict.reasons)
    assert all(row.cases > 0 and row.metrics == {} and row.reasons == (INTERPRETED,) for row in verdict.rows)


# The command


def kernwright(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kernwright.cli.main", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def test_ctrl_c_while_timing_leaves_a_verdict_marked_interrupted(
    tiny_folder: Path,
    private_tmp: Path,
    tmp_path: Path,
    write_candidate: Callable[..., Path],
    write_task: Any,
    task_texts: Any,
) -> None:
    endless = task_texts["toml"].replace("quads_per_round = 7", "quads_per_round = 10000")
    task = write_task(tmp_path / "endless", toml=endless)
    candidate = write_candidate(tmp_path / "honest", HONEST)
    ledger, json_file = tmp_path / "ledger", tmp_path / "verdict.json"
    process = kernwright(
        "judge", task, "--candidate", candidate, "--rows", "axpy_small", "--ledger", ledger, "--json", json_file
    )
    assert process.stderr is not None and process.stdout is not None
    heard = ""
    for line in process.stderr:
        heard += line
        if "timing, round 1" in line:
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2, heard + err + out
    assert "Traceback" not in heard + err
    assert "interrupted" in out
    (run,) = Ledger(ledger).runs()
    last = Ledger(ledger).records(run)[-1]
    assert (last.kind, last.body["interrupted"], last.body["evidence"]) == ("verdict", True, False)
    assert verify(ledger) == []
    again = recompute(Ledger(ledger))
    assert (again.verdicts, again.differences, again.underivable) == (1, [], {})
    assert json.loads(json_file.read_text())["interrupted"] is True
    assert not list(private_tmp.glob("kernwright-scratch-*")), "scratch folders are gone"


def test_an_invalid_request_is_refused_in_one_message(
    tiny_folder: Path,
    private_tmp: Path,
    tmp_path: Path,
    write_candidate: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good = ["--candidate", str(write_candidate(tmp_path / "honest", HONEST))]
    cuda = ["--candidate", str(write_candidate(tmp_path / "gpu", "", language="cuda"))]
    other = ["--candidate", str(write_candidate(tmp_path / "other", HONEST, op="gelu"))]
    (tmp_path / "broken").mkdir()
    (tmp_path / "file").write_text("")
    tiny = str(tiny_folder)
    cases: list[tuple[list[str], str]] = [
        ([tiny, *good, "--rows", "huge"], "huge"),
        ([tiny, *good, "--rounds", "0"], "--rounds must be at least 1, the policy's first look, got 0"),
        ([tiny, *good, "--device", "tpu"], "'tpu'"),
        ([tiny, *good, "--device", "cuda"], "device cuda"),
        ([tiny, *good, "--json", str(tmp_path / "none" / "v.json")], "cannot be written"),
        (["no_such_task", *good], "'no_such_task'"),
        ([tiny, *good, "--baseline", "sglang"], "'sglang'"),
        ([tiny, *good, "--rows", "gelu_*"], "'gelu_*'"),
        ([tiny], "--candidate"),
        ([tiny, "--candidate", str(tmp_path / "nowhere")], "is not a folder"),
        ([tiny, "--candidate", str(tmp_path / "broken")], "candidate.toml: does not exist"),
        ([tiny, *cuda], "does not run on a CPU"),
        ([tiny, *other], "gelu"),
        ([tiny, *good, "--ledger", str(tmp_path / "file")], "ledger"),
        ([str(tmp_path / "broken"), *good], "task.toml: does not exist"),
    ]
    monkeypatch.setattr("kernwright.judge.request.hide_judge", lambda: "not hidden: a test's process")
    monkeypatch.setenv("KERNWRIGHT_LEDGER", str(tmp_path / "ledger"))
    for words, said in cases:
        done = CliRunner().invoke(app, ["judge", *words])
        refused = done.exception
        assert isinstance(refused, KernwrightError), (words, done.output, refused)
        assert said in str(refused) and refused.remedy, (words, refused)
        assert done.stdout == "", words


def test_a_refused_request_ends_the_process_with_status_2_and_one_message(tmp_path: Path) -> None:
    process = kernwright("judge", "no_such_task", "--candidate", tmp_path)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, ""), err
    assert err.count("kernwright: ") == 1 and "no_such_task" in err
    assert err.count("\n  remedy: ") == 1 and "Traceback" not in err
