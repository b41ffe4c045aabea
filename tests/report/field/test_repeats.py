"""The repeatability of device times."""

from __future__ import annotations

import pytest

from kernwright.report.field.repeats import DeviceTime, Repeats

NEW, OLD = "b" * 64, "a" * 64
DAYS = {NEW: "2026-11-17T08:00:00Z", OLD: "2026-11-16T08:00:00Z"}


def repeats(*rows: tuple[str, str, list[DeviceTime]]) -> Repeats:
    own = Repeats()
    for number, (contender, row, times) in enumerate(rows):
        own.add(contender, f"task {number}", row, times)
    return own


def times(*each: float, gpu: str = "a", judge: str = NEW) -> list[DeviceTime]:
    return [DeviceTime(us, gpu, judge, DAYS[judge]) for us in each]


def test_the_newest_two_times_of_one_judge_on_one_gpu_are_a_repeat() -> None:
    own = repeats(
        ("compile", "r", times(50.0, 20.0, 20.3)),
        ("compile", "s", times(20.0, 20.5)),
        ("eager", "r", times(20.0, 19.6)),
        ("eager", "once", times(20.0)),
        ("eager", "elsewhere", [*times(20.0), *times(20.1, gpu="b")]),
        ("eager", "by another judge", [*times(20.0, judge=OLD), *times(20.1)]),
    )
    (found,) = own.judged_twice().values()
    assert {name: [(each.row, each.is_alike) for each in each_of] for name, each_of in found.items()} == {
        "compile": [("r", True), ("s", False)],
        "eager": [("r", True)],
    }
    assert [each.difference for each in found["compile"]] == [pytest.approx(0.015), pytest.approx(0.025)]


def test_each_version_of_the_judge_is_listed_separately_newest_first() -> None:
    own = repeats(
        ("compile", "r", [*times(20.0, 30.0, judge=OLD), *times(20.0, 20.1)]),
        ("compile", "s", times(20.0, 20.1, judge=OLD)),
    )
    newest, before = own.told()
    assert "bbbbbbbb" in newest and newest.endswith("compile 1 of 1.")
    assert "aaaaaaaa" in before and "compile 1 of 2." in before and before.endswith("compile on r +50.0%.")


def test_a_row_whose_times_differ_too_much_is_named() -> None:
    (told,) = repeats(("compile", "r", times(20.0, 26.0)), ("eager", "s", times(30.0, 29.0))).told()
    assert "compile 0 of 1, eager 0 of 1." in told and told.endswith("compile on r +30.0%, eager on s -3.3%.")


def test_rows_of_one_name_in_two_tasks_are_two() -> None:
    own = repeats(("eager", "r", times(20.0, 20.0)), ("eager", "r", times(30.0, 40.0)))
    assert [each.is_alike for each in own.judged_twice()[NEW]["eager"]] == [True, False]


def test_short_rows_do_not_count() -> None:
    own = repeats(("eager", "r", times(9.0, 11.0)), ("eager", "s", []))
    assert own.told() == []


def test_the_newest_times_of_several_gpus_are_compared() -> None:
    own = repeats(
        ("eager", "r", [*times(90.0, 20.0), *times(22.0, gpu="b"), *times(21.0, gpu="c", judge=OLD)]),
        ("eager", "s", [*times(20.0), *times(20.0, gpu="b")]),
        ("eager", "one GPU", times(20.0, 40.0)),
    )
    assert own.between_gpus() == {"eager": [0.0, pytest.approx(0.1)]}
    assert own.told()[-1].endswith("eager: median 5.0% of 2 rows, largest 10.0%.")


def test_how_far_apart_a_contenders_times_of_one_row_are() -> None:
    own = Repeats()
    own.add("compile", "t", "r", [*times(20.0), *times(25.0, judge=OLD), *times(24.0, gpu="b")])
    own.add("compile", "t", "s", times(60.0, 66.0))
    own.add("compile", "other", "r", times(20.0, 60.0))
    own.add("eager", "t", "r", times(20.0))
    assert own.most_apart("compile", "t") == pytest.approx(0.25)
    assert (own.most_apart("eager", "t"), own.most_apart("sglang", "t")) == (0.0, 0.0)
