"""Verdicts are derived again from their samples, and every altered figure or sample is reported."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest
from typer.testing import CliRunner

from kernwright.cli.main import app
from kernwright.judge.record.decision import overall
from kernwright.judge.record.headline import headline_of
from kernwright.judge.record.recompute import recompute
from kernwright.judge.record.round_record import RoundQuads
from kernwright.judge.record.sample import Quad, RowSamples, Sample
from kernwright.judge.record.verdict import Verdict
from kernwright.judge.rounds.row_state import RowState
from kernwright.ledger.ledger import Ledger
from kernwright.ledger.verify import verify
from kernwright.tasks.policy import TimingPolicy
from kernwright.tasks.workload import Workload

POLICY = TimingPolicy(quads_per_round=4, first_look=1, max_rounds=2)
SIDES = {"baseline": "baseline", "again": "again", "candidate-2": "candidate"}


class NoLimit:
    """A device on which every time is possible."""

    def fastest_seconds(self, *_: Any) -> float:
        return 0.0


def quads(number: int, gain: float) -> list[Quad]:
    """Quads of one round in which the second contender takes 1 / gain of the baseline's time."""
    found = []
    for metric, us in (("stream", 100.0), ("wall", 120.0)):
        for index in range(6):
            ripple = 1 + 0.002 * math.sin(7 * number + index)
            base, own = us * 1e3, us * 1e3 / gain * ripple
            times = {
                "baseline": (base, base), "again": (base * ripple, base), "candidate": (base, base),
                "candidate-2": (own, own),
            }  # fmt: skip
            quad = Quad(
                metric=metric, round=number, order=list(times), redone=0, kept_waiting=frozenset(), ns_per_call=times
            )  # type: ignore[arg-type]
            found.append(quad)
    return found


@pytest.fixture
def judged(make_row: Callable[..., dict[str, Any]]) -> tuple[dict[str, Any], list[list[Sample]]]:
    """A verdict on two rows, as the judge writes it, and the samples of its first row by round."""
    states = []
    for name, gain in (("a", 2.0), ("b", 1.1)):
        row = make_row(name, "axpy", {"x": [64, 64], "w": [64]}, {"y": [64, 64]})
        state = RowState(row=Workload.model_validate(row))
        state.samples = [quad.of(SIDES) for number in (0, 1) for quad in quads(number, gain)]  # type: ignore[arg-type]
        state.unavailable["device"] = "no graph"
        states.append(state)
    device: Any = NoLimit()
    rows = tuple(state.verdict(POLICY, device, False) for state in states)
    headline, outcome = headline_of(states, rows, POLICY, False)
    verdict = Verdict(
        task="t", task_digest="d", baseline="eager", baseline_digest="d", candidate="c", candidate_digest="d",
        style="returns", verdict=overall([row.verdict for row in rows], outcome), reasons=(), headline=headline,
        rows=rows, evidence=True, provenance={"policy": POLICY.model_dump(mode="json")},
    )  # fmt: skip
    assert verdict.verdict == "faster"
    return verdict.model_dump(mode="json"), [state.samples for state in states]


def write(root: Path, judged: tuple[dict[str, Any], list[list[Sample]]], change: Callable[[Any, Any], None]) -> Ledger:
    """Write a run as the judge does, after ``change`` altered the verdict's body or the stored quads."""
    ledger = Ledger(root)
    body, rows = judged[0], dict(zip("ab", judged[1], strict=True))
    stored = []
    for number in (0, 1):
        own = {row: [sample for sample in samples if sample.round == number] for row, samples in rows.items()}
        round_ = RoundQuads()
        for row, samples in own.items():
            round_.add(row, samples)
        stored.append((number, own, round_, json.loads(round_.blob())))
    change(body, [content for *_, content in stored])
    with ledger.open_run({}) as writer:
        for number, own, round_, content in stored:
            blob = writer.blob(json.dumps(content).encode())
            writer.append("round", round_.body(number, blob, SIDES, own))  # type: ignore[arg-type]
        writer.append("verdict", body)
    assert verify(root) == [], "the chain itself is sound"
    return ledger


def test_an_untouched_verdict_is_derived_to_the_last_figure(judged: Any, tmp_path: Path) -> None:
    found = recompute(write(tmp_path, judged, lambda body, quads: None))
    assert (found.verdicts, found.rows, found.differences, found.underivable) == (1, 2, [], {})


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("rows", 0, "metrics", "stream", "ratio"), 2.5),
        (("rows", 1, "metrics", "wall", "interval", 0), 1.3),
        (("rows", 1, "metrics", "stream", "noise_band"), 0.001),
        (("rows", 0, "metrics", "stream", "candidate_us"), 40.0),
        (("rows", 0, "metrics", "stream", "quads"), 99),
        (("rows", 1, "verdict"), "same"),
        (("rows", 1, "verdict"), "inconclusive"),
        (("headline", "stream", "geomean"), 3.0),
        (("headline", "stream", "worst_row"), "a"),
        (("headline", "wall", "outcome"), "slower"),
        (("verdict",), "same"),
    ],
)
def test_an_altered_figure_is_reported(judged: Any, tmp_path: Path, place: tuple[Any, ...], value: Any) -> None:
    def alter(body: Any, _: Any) -> None:
        for step in place[:-1]:
            body = body[step]
        body[place[-1]] = value

    differences = recompute(write(tmp_path, judged, alter)).differences
    assert str(place[-1]) in " ".join(own.place for own in differences)
    assert value in [own.recorded for own in differences]


def test_an_altered_sample_is_reported(judged: Any, tmp_path: Path) -> None:
    def alter(_: Any, rounds: Any) -> None:
        for quad in rounds[1]["a"]:
            quad["ns_per_call"]["candidate-2"] = [20e3, 20e3]

    places = {own.place for own in recompute(write(tmp_path, judged, alter)).differences}
    assert "a.stream.ratio" in places and "headline.stream.geomean" in places
    assert not any(place.startswith("b.") for place in places)


def test_a_row_below_the_least_possible_time_is_reported(judged: Any, tmp_path: Path) -> None:
    found = recompute(write(tmp_path, judged, lambda body, quads: body["rows"][0].update(least_us=70.0)))
    assert ("a.verdict", "faster", "tampered") in [(own.place, own.recorded, own.derived) for own in found.differences]


def test_a_sample_of_another_pair_changes_nothing(judged: Any, tmp_path: Path) -> None:
    def alter(_: Any, rounds: Any) -> None:
        rounds[0]["a"][0]["ns_per_call"]["candidate"] = [1.0, 1.0]

    assert recompute(write(tmp_path, judged, alter)).differences == []


def test_a_verdict_without_samples_is_not_derivable(judged: Any, tmp_path: Path) -> None:
    with Ledger(tmp_path).open_run({}) as writer:
        writer.append("verdict", judged[0])
    found = recompute(Ledger(tmp_path))
    assert list(found.underivable) == [f"run {writer.run}, record 1"] and found.differences == []


def of_an_earlier_schema(rows: list[RowSamples], metric: Any, level: float) -> dict[str, Any]:
    """Return the figures of a headline in which schemas 1 and 2 differ: an interval of 95 %, and no outcome."""
    found: dict[str, Any] = {"outcome": None, "level": None, "undecided": [], "in_doubt": []}
    narrower = NormalDist().inv_cdf(0.975) / NormalDist().inv_cdf(0.5 + level / 2)
    intervals = [row.intervals(metric, level) for row in rows]
    for name, part in (("interval", 0), ("noise_band", 1)):
        own = [pair[part] for pair in intervals]
        middle = sum(interval.estimate for interval in own) / 2
        half = narrower * math.sqrt(sum(((interval.high - interval.low) / 2) ** 2 for interval in own)) / 2
        ends = (middle - half, middle + half)
        band = max(0.01, math.expm1(max(map(abs, ends))))
        found[name] = [math.exp(end) for end in ends] if name == "interval" else band
    return found


def test_a_verdict_of_the_first_schema_is_derived_from_its_own_blob(judged: Any, tmp_path: Path) -> None:
    body, rows = judged
    ledger = Ledger(tmp_path)
    names = ("metric", "round", "order", "redone", "busy", "ns_per_call")
    stored = {row: [{n: getattr(s, n) for n in names} for s in own] for row, own in zip("ab", rows, strict=True)}
    with ledger.open_run({}) as writer:
        blob = f"blob:{writer.blob(json.dumps(stored).encode())}"
        for row in body["rows"]:
            row["samples"] = blob
        for metric, level in (("stream", 0.975), ("wall", 1 - 2 / 2**6)):
            body["headline"][metric] |= of_an_earlier_schema([RowSamples(own, {}) for own in rows], metric, level)
        writer.append("verdict", body | {"schema_version": 1})
    found = recompute(ledger)
    assert (found.rows, found.differences, found.underivable) == (2, [], {})


def test_the_command_says_what_differs(judged: Any, tmp_path: Path) -> None:
    sound, altered = tmp_path / "sound", tmp_path / "altered"
    write(sound, judged, lambda body, quads: None)
    done = CliRunner().invoke(app, ["ledger", "recompute", "--ledger", str(sound)])
    assert done.exit_code == 0 and "1 of 1 verdict(s)" in done.output
    ledger = write(altered, judged, lambda body, quads: body["rows"][0]["metrics"]["stream"].update(ratio=9.0))
    done = CliRunner().invoke(app, ["ledger", "recompute", "--ledger", str(altered)])
    assert done.exit_code == 1 and f"{ledger.runs()[0]}, record 3: a.stream.ratio: recorded 9.0" in done.output


def test_few_quads_are_unavailable_and_others_are_given() -> None:
    row = RowSamples([quad.of(SIDES) for quad in quads(0, 2.0)][:2], {"device": "no graph"})  # type: ignore[arg-type]
    assert "too few" in str(row.result("stream", POLICY, quick=False))
    assert "no graph" in str(row.result("device", POLICY, quick=False))
