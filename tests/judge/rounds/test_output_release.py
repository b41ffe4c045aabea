"""The time for freeing outputs: the block for which it counts, and gains that are refused because of it."""

from __future__ import annotations

import pytest

from kernwright.judge.record.row_outcome import MIN_RELEASES, paid_on_release
from kernwright.judge.record.sample import Sample
from kernwright.judge.record.verdict import MetricResult
from kernwright.judge.rounds.output_release import ReleaseTimes


def test_the_time_per_call_comes_from_the_previous_block() -> None:
    release_times = ReleaseTimes()
    release_times.note("candidate", 500, 10)
    assert release_times.of("candidate") is None, "what it held then, nobody knows"
    release_times.note("candidate", 700, 4)
    assert release_times.of("candidate") == 70.0
    release_times.note("baseline", 300, 4)
    assert release_times.of("baseline") is None and release_times.of("candidate") == 70.0


def test_requests_between_blocks_do_not_count() -> None:
    release_times = ReleaseTimes()
    for side in ("candidate", "baseline"):
        release_times.note(side, 500, 10)
    release_times.disturb("candidate")
    for side in ("candidate", "baseline"):
        release_times.note(side, 700, 10)
    assert release_times.of("candidate") is None and release_times.of("baseline") == 70.0


def quads(count: int, candidate_us: float, baseline_us: float = 1.0) -> list[Sample]:
    released = {"baseline": (baseline_us * 1e3,) * 2, "candidate": (candidate_us * 1e3,) * 2}
    return [
        Sample(metric="stream", round=0, order=[], redone=0, busy=False, ns_per_call={}, released_ns=released)
        for _ in range(count)
    ]  # type: ignore[arg-type]


def result(baseline_us: float, candidate_us: float) -> MetricResult:
    return MetricResult(
        ratio=baseline_us / candidate_us, interval=(1.0, 2.0), noise_band=0.01, baseline_us=baseline_us,
        candidate_us=candidate_us, quads=8, outcome="faster",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("more_us", "times", "count", "is_paid"),
    [
        (60, (200, 100), 3, True),
        (40, (200, 100), 3, False),
        (60, (200, 100), MIN_RELEASES - 1, False),
        (9, (200, 199), 3, False),
        (11, (200, 199), 3, True),
        (2, (10, 9.9), 3, False),
        (4, (10, 9.9), 3, True),
    ],
    ids=[
        "most of the gain",
        "less than half",
        "too few",
        "little beside the baseline",
        "not so little",
        "us",
        "more us",
    ],
)
def test_a_gain_that_slow_freeing_pays_for_is_refused(
    more_us: float, times: tuple[float, float], count: int, is_paid: bool
) -> None:
    reason = paid_on_release(quads(count, 1.0 + more_us), result(*times))
    assert (reason is not None) == is_paid
    if reason:
        assert f" {more_us} us" in reason


def test_a_side_that_reports_no_freeing_time_is_not_refused() -> None:
    unmeasured = Sample(metric="stream", round=0, order=[], redone=0, busy=False, ns_per_call={})
    assert paid_on_release([unmeasured] * 8, result(200, 100)) is None
