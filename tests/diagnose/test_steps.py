"""Steps of a run: named by the profiler or by the program, on the GPU's timeline alone, or repeating kernels."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest
from made_trace import MadeTrace

from kernwright.diagnose.steps import Steps, group_of, repetitions, steps_of
from kernwright.diagnose.trace.trace import read_trace

BLOCK = ["norm", "gemm", "attention", "gemm", "gate"]
STEP = ["embed", *BLOCK * 3, "project"]


def found(trace: MadeTrace, tmp_path: Path) -> Steps:
    return steps_of(read_trace(trace.write(tmp_path / "trace.json")))


def add_step(trace: MadeTrace, start: float, length: float = 10.0, delay: float = 40.0) -> float:
    """Add the kernels of a step, each launched before it runs. Return the end of the host's part."""
    for number, name in enumerate(STEP):
        trace.kernel(name, start + delay + number * (length + 1), length, launched=start + 4 * number)
    return start + 4 * len(STEP) + 5


def summary(steps: Steps) -> list[tuple[str, str, int]]:
    return [(step.name, step.group, len(step.events)) for step in steps.steps]


@pytest.mark.parametrize("named", ["ProfilerStep#{}", "decode#{}", "denoising_step_{}"])
def test_a_step_has_what_was_launched_in_its_range(named: str, tmp_path: Path) -> None:
    trace = MadeTrace()
    trace.range("user_annotation", "## Call CompiledFxGraph abc ##", 1.0, 20.0)
    for number in range(3):
        end = add_step(trace, 100.0 * number, delay=150.0)  # the GPU is behind: kernels run in the next step's range
        trace.range("user_annotation", named.format(number), 100.0 * number - 1, end)
        trace.range("user_annotation", "layer_0", 100.0 * number, end - 1)
    steps = found(trace, tmp_path)
    group = group_of(named.format(1))
    assert summary(steps) == [(named.format(number), group, len(STEP)) for number in range(3)]
    assert steps.source == ("profiler" if "Profiler" in named else "annotations")
    assert all(before.end_us <= after.start_us for before, after in pairwise(steps.steps))


def test_the_steps_of_a_stage_are_found_within_it(tmp_path: Path) -> None:
    trace = MadeTrace()
    trace.range("user_annotation", "TextEncoding", -90.0, -1.0)
    add_step(trace, -90.0)
    for number in range(2):
        end = add_step(trace, 300.0 * number)
        trace.range("user_annotation", f"step_{number}", 300.0 * number - 1, end)
    trace.range("user_annotation", "Denoising", -0.9, 600.0)
    assert [step.name for step in found(trace, tmp_path).steps] == ["TextEncoding", "step_0", "step_1"]


def test_without_a_host_the_ranges_of_the_gpu_are_steps(tmp_path: Path) -> None:
    trace = MadeTrace()
    for number in range(2):
        for place, name in enumerate(STEP):
            trace.kernel(name, 1000.0 * number + 10 * place, 9.0)
        trace.gpu_range(f"decode#{number}", 1000.0 * number, 1000.0 * number + 10 * len(STEP))
    trace.kernel("after", 5000.0, 1.0)
    steps = found(trace, tmp_path)
    assert summary(steps) == [("decode#0", "decode", len(STEP)), ("decode#1", "decode", len(STEP))]
    assert [event.name for event in steps.outside] == ["after"]


def test_a_slow_first_step_is_warmup(tmp_path: Path) -> None:
    trace = MadeTrace()
    for number, length in enumerate((40.0, 10.0, 11.0, 10.0)):
        end = add_step(trace, 2000.0 * number, length)
        trace.range("user_annotation", f"ProfilerStep#{number}", 2000.0 * number - 1, end)
    steps = found(trace, tmp_path)
    assert [step.is_warmup for step in steps.steps] == [True, False, False, False]
    assert [step.name for step in steps.steady] == ["ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#3"]


@pytest.mark.parametrize("count", [2, 3, 7])
@pytest.mark.parametrize("cut", [0, 1, 9])
def test_repeating_kernels_are_steps_and_repeating_blocks_are_not(count: int, cut: int) -> None:
    names = STEP * count
    rotated = names[cut:] + names[:cut]
    cuts = repetitions(rotated)
    assert len(cuts) == count
    assert {after - before for before, after in pairwise(cuts)} == {len(STEP)}
    assert len(rotated) - cuts[-1] == len(STEP), "the last step is whole"


def test_long_blocks_that_are_nearly_even_are_no_steps() -> None:
    step = ["embed", *[f"kernel {number}" for number in range(30)] * 4, "project"]
    cuts = repetitions(step * 3)
    assert [cuts[0], *(after - before for before, after in pairwise(cuts))] == [0, len(step), len(step)]


def test_kernels_without_order_are_no_steps() -> None:
    draw = random.Random(4)
    assert repetitions([draw.choice("abcdefgh") for _ in range(300)]) == []
    assert repetitions([]) == repetitions(["once"]) == repetitions(["one kernel"] * 300) == []


def test_a_trace_without_ranges_is_cut_where_its_kernels_repeat(tmp_path: Path) -> None:
    trace = MadeTrace()
    for number in range(3):
        add_step(trace, 500.0 * number)
        trace.kernel("copy on another stream", 500.0 * number + 45, 3.0, stream=9)
    steps = found(trace, tmp_path)
    assert steps.source == "repetition"
    assert [len(step.events) for step in steps.steps] == [len(STEP) + 1] * 3


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("ProfilerStep#12", "ProfilerStep"),
        ("decode_3", "decode"),
        ("step[DECODE bs=4 toks=128]", "step[DECODE bs=# toks=#]"),
        ("7", "7"),
        ("prefill", "prefill"),
    ],
)
def test_the_group_of_a_step_is_its_name_without_the_number(name: str, group: str) -> None:
    assert group_of(name) == group
