"""Several pairs in one judgement: each gets the record that it would get alone, and none affects another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.judge.contest.worker_group import WorkerGroup
from kernwright.judge.device.cpu import CpuDevice
from kernwright.judge.judge import Judgement
from kernwright.judge.record.recompute import recompute
from kernwright.judge.record.round_record import recorded_samples
from kernwright.judge.record.sample import Quad, Sample
from kernwright.judge.record.verdict import Verdict
from kernwright.judge.request import JudgeRequest, judge_together
from kernwright.judge.rounds.row_round import RowRound
from kernwright.judge.rounds.timing import RowTiming
from kernwright.judge.session.session import DeviceBusy, DeviceSlowed, Session
from kernwright.ledger.ledger import Ledger
from kernwright.ledger.record import Record
from kernwright.ledger.verify import verify
from kernwright.tasks.policy import Metric

pytestmark = pytest.mark.slow

CONTENDERS = """
def copied(op):
    return lambda x, w, *, alpha=2.0: alpha * x + w

def slow(op):
    def run(x, w, *, alpha=2.0):
        for _ in range(200):  # so slow that no noise hides it
            y = alpha * x + w
        return y
    return run

def wrong(op):
    return lambda x, w, *, alpha=2.0: alpha * x + w * 1.01

def tired(op):
    calls = 0
    def run(x, w, *, alpha=2.0):
        nonlocal calls
        calls += 1
        if calls > 90:  # which `wall` alone makes, however slow the machine
            raise RuntimeError("too many calls for me")
        return alpha * x + w
    return run

def picky(op):
    def run(x, w, *, alpha=2.0):
        if alpha == 3.0:
            raise RuntimeError("not this one")
        return alpha * x + w
    return run
"""
BAD = {"incorrect", "failed", "tampered"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, write_task: Callable[..., Path], task_texts: Any) -> Path:
    two_rounds = task_texts["toml"].replace("max_rounds = 1", "max_rounds = 2")
    folder = write_task(tmp_path_factory.mktemp("tasks") / "tiny", toml=two_rounds)
    (folder / "baselines.py").write_text(CONTENDERS)
    return folder


Matches = list[tuple[str, str]]


@pytest.fixture
def together(folder: Path, private_tmp: Path, tmp_path: Path, quiet: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("kernwright.judge.request.hide_judge", lambda: "not hidden: a test's process")
    monkeypatch.setattr("kernwright.judge.rounds.sizing.spread", lambda _: 0.0)  # no row starts over

    def judge(matches: Matches, rows: str = "axpy_small", **more: Any) -> list[Verdict | None]:
        requests = [
            JudgeRequest(
                task=str(folder),
                candidate=None,
                baseline=baseline,
                contender=None if contender == baseline else contender,
                against_itself=contender == baseline,
                rows=rows,
                ledger=tmp_path,
                **more,
            )
            for baseline, contender in matches
        ]
        return judge_together(requests, quiet)

    return judge


def runs(ledger: Path) -> list[list[Record]]:
    assert verify(ledger) == []
    return [Ledger(ledger).records(run) for run in Ledger(ledger).runs()]


def samples(ledger: Path, record: Record) -> list[Sample]:
    """Return the samples of one round, from its record."""
    book = Ledger(ledger)
    (verdict,) = (own for own in book.records(record.run) if own.kind == "verdict")
    found = recorded_samples(book, [record], Verdict.model_validate(verdict.body))
    return [sample for sample in found["axpy_small"] if sample.metric == "stream"]


@pytest.mark.clock  # one side is found slower
def test_each_pair_ends_as_if_it_had_been_alone_and_a_bad_one_costs_no_other(together: Any, tmp_path: Path) -> None:
    names = ["eager", "slow", "wrong", "tired"]
    verdicts = together([("eager", name) for name in names])
    assert [verdict.candidate for verdict in verdicts] == names
    by_name = {verdict.candidate: verdict for verdict in verdicts}
    assert by_name["eager"].verdict not in BAD and by_name["slow"].verdict == "slower"
    assert by_name["wrong"].verdict == "incorrect" and by_name["wrong"].rows[0].metrics == {}
    assert by_name["tired"].verdict == "failed"
    (reason,) = by_name["tired"].rows[0].reasons
    message, frame = reason.split("\n")
    assert message == "RuntimeError: too many calls for me", "while it was timed"
    assert "baselines.py:" in frame and "raise RuntimeError" in frame
    assert all(verdict.evidence for verdict in verdicts)
    assert by_name["slow"].provenance["together"] == [
        {"baseline": "eager", "candidate": name} for name in names if name != "slow"
    ]
    own = dict(zip(names, runs(tmp_path), strict=True))
    for name, records in own.items():
        assert records[-1].body == by_name[name].model_dump(mode="json")
        kinds = [record.kind for record in records]
        rounds = kinds.count("round")
        assert kinds == ["run", "correctness", *["round"] * rounds, "verdict"]
        if name in ("eager", "slow"):
            assert by_name[name].rows[0].metrics["stream"].quads == 7 * rounds, "each round whole"
        else:
            assert rounds == 1, "what is decided has no part in later rounds"
    shared = [samples(tmp_path, own[name][2]) for name in ("eager", "slow")]
    assert [len(quads) for quads in shared] == [7, 7]
    for one, other in zip(*shared, strict=True):
        assert set(one.order) == set(one.ns_per_call) == {"baseline", "again", "candidate"}
        for side in ("baseline", "again"):
            assert one.ns_per_call[side] == other.ns_per_call[side], "a quad holds every side once"
        assert one.ns_per_call["candidate"] != other.ns_per_call["candidate"]
    assert own["eager"][2].body["samples"] == own["slow"][2].body["samples"], "their quads are stored once"
    assert recompute(Ledger(tmp_path)).differences == []


def test_a_baseline_that_fails_leaves_other_pairs_intact(
    together: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fine, fallen = together([("eager", "copied"), ("picky", "copied")], rows="axpy_*")
    assert fallen is None and fine.verdict not in BAD
    assert [row.metrics["stream"].quads % 7 for row in fine.rows] == [0, 0], "each round whole"
    first, second = runs(tmp_path)
    assert first[-1].kind == "verdict"
    assert second[-1].kind == "abandoned" and "not this one" in second[-1].body["cause"]
    with pytest.raises(KernwrightError, match="not this one"):
        together([("picky", "copied")], rows="axpy_wide")

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Judgement, "_refuse_changed_files", interrupted)
    with pytest.raises(KeyboardInterrupt):  # a sweep would try these pairs again one by one
        together([("picky", "copied"), ("picky", "slow")], rows="axpy_wide")
    assert [records[-1].kind for records in runs(tmp_path)[-2:]] == ["abandoned"] * 2


def test_a_fault_of_unknown_origin_is_traced_one_contender_at_a_time(
    together: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device is busy whenever the second contender is about to run. Each time the judge must find out which side is
    to blame."""
    seen: list[str] = []

    def ready(self: Session) -> None:
        seen.append(self.worker.label)
        if self.worker.label == "candidate-2":
            raise DeviceBusy("it answers late")

    monkeypatch.setattr(Session, "ready", ready)
    honest, busy = together([("eager", "copied"), ("eager", "slow")])
    assert honest.verdict not in BAD
    assert busy.verdict == "tampered" and "kept the device busy" in busy.rows[0].reasons[0]
    alone = seen[seen.index("candidate-2") + 1 :]
    assert set(alone[: alone.index("candidate-2")]) == {"baseline", "again", "candidate"}


def test_a_contender_that_has_finished_its_row_may_still_be_to_blame(
    together: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device stays busy until the worker of a contender has ended whose results were wrong and which is not
    timed."""
    ended: list[str] = []
    respawn = WorkerGroup.respawn

    def noting(self: WorkerGroup, *names: str) -> None:
        ended.extend(names)
        respawn(self, *names)

    def ready(self: Session) -> None:
        if "candidate-2" not in ended:
            raise DeviceBusy("it answers late")

    monkeypatch.setattr(WorkerGroup, "respawn", noting)
    monkeypatch.setattr(Session, "ready", ready)
    honest, wrong = together([("eager", "copied"), ("eager", "wrong")])
    assert honest.verdict not in BAD, honest.reasons
    assert wrong.verdict == "incorrect"


class Slow:
    """A device whose memory is slow before the given quads of `stream`. `by_itself` tells whether it is slow without
    contenders too."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *slow: int, by_itself: bool = False) -> None:
        self.accepted = self.taken = 0
        quad = RowTiming.quad

        def slowed(timing: RowTiming, metric: Metric, number: int) -> Quad:
            self.taken += metric == "stream"
            if metric == "stream" and self.taken in slow:
                raise DeviceSlowed("it is slow")
            return quad(timing, metric, number)

        def accept(_: CpuDevice) -> None:
            self.accepted += 1

        monkeypatch.setattr(RowTiming, "quad", slowed)
        monkeypatch.setattr(CpuDevice, "is_slow", lambda device, within_s: by_itself)
        monkeypatch.setattr(CpuDevice, "accept_memory_speed", accept)


@pytest.fixture
def judged(together: Any, folder: Path, write_candidate: Any, tmp_path: Path, quiet: Any) -> Callable[[], Verdict]:
    """Return a judgement of an untrusted, correct candidate."""

    def judge() -> Verdict:
        source = "def axpy(x, w, *, alpha=2.0):\n    return alpha * x + w\n"
        candidate = write_candidate(tmp_path / "candidate", source)
        request = JudgeRequest(task=str(folder), candidate=candidate, rows="axpy_small", ledger=tmp_path / "ledger")
        (verdict,) = judge_together([request], quiet)
        assert verdict is not None
        return verdict

    return judge


def test_a_device_that_was_slow_once_has_the_row_begun_anew(
    together: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Slow(monkeypatch, 4)
    spent: list[float] = []  # budget when the row starts and when it starts again: it must not shrink
    time_it = RowRound._time

    def noting(turn: RowRound) -> None:
        spent.extend(state.spent_s for state in turn._states)
        time_it(turn)

    monkeypatch.setattr(RowRound, "_time", noting)
    (honest,) = together([("eager", "copied")])
    assert honest.verdict not in BAD and honest.provenance["slowed"] == 1
    assert spent[:2] == [0.0, 0.0]
    (records,) = runs(tmp_path)
    first = next(record for record in records if record.kind == "round")
    assert len(samples(tmp_path, first)) == 7, "what was measured before is not counted"


def test_a_device_slow_twice_and_fast_without_a_candidate_convicts_it(
    judged: Callable[[], Verdict], monkeypatch: pytest.MonkeyPatch
) -> None:
    Slow(monkeypatch, 4)
    assert judged().verdict not in BAD, "once is no proof"
    Slow(monkeypatch, 2, 5)
    busy = judged()
    assert busy.verdict == "tampered" and "memory busy" in busy.rows[0].reasons[0]


def test_a_baseline_in_a_candidates_place_is_not_blamed(together: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Slow(monkeypatch, 2, 5)
    (honest,) = together([("eager", "copied")])
    assert honest.verdict not in BAD and honest.provenance["slowed"] == 2


def test_a_device_that_is_slow_by_itself_is_judged_on_as_it_is(
    judged: Callable[[], Verdict], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch, 1, 2, 9, by_itself=True)
    copies: list[int] = []
    monkeypatch.setattr(CpuDevice, "copy_seconds", lambda device, *sizes: copies.append(1) or 1e-6)
    assert judged().verdict not in BAD
    assert slow.accepted == 3 and len(copies) == 4, "a copy is measured at the row's own pace"


def test_a_device_that_never_keeps_its_pace_is_not_judged_on(together: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Slow(monkeypatch, *range(999), by_itself=True)
    with pytest.raises(EnvironmentProblem, match="does not keep its pace"):
        together([("eager", "copied")])


def test_unrelated_requests_are_not_judged_together(
    together: Any, folder: Path, write_candidate: Any, tmp_path: Path, quiet: Any
) -> None:
    with pytest.raises(KernwrightError, match="kernwright cannot be judged together"):
        together([("eager", "kernwright"), ("eager", "copied")])
    with pytest.raises(KernwrightError, match="requested twice"):
        together([("eager", "copied"), ("eager", "copied")])
    one, other = (
        JudgeRequest(task=str(folder), candidate=None, contender="copied", rows=rows)
        for rows in ("axpy_small", "axpy_wide")
    )
    with pytest.raises(KernwrightError, match="cannot share a judgement"):
        judge_together([one, other], quiet)
