"""Does the saving that a trace predicts arrive? `run --swap` on blocks of FLUX.1 against the prediction.

    python benchmarks/bench_swap.py [--turns N] [--tiny] [--keep DIR] [-- OPTIONS OF flux_blocks.py]
    python benchmarks/bench_swap.py --evaluate DIR --record docs/swap.json      # a kept run again, for docs/denoise.md

The adaptive norms of FLUX.1 (diffusers) are replaced by `ops.norm_scale_shift` in a run of flux_blocks.py.

- Predicted: in a trace of one step, the GPU time of the eager chains (LayerNorm, 1 + scale, product, sum) minus that of
  the op's kernel on the same shapes. The program with the swap is not needed for it.
- Measured: the median denoise step without and with the swap, in runs that took turns. The fastest steps are compared,
  too: after some steps the power limit may lower the clock, and the more so the less the GPU waits for memory, while
  the trace is of a GPU at full clock.

The exit status is 1 if the measured saving differs from the predicted one by more than 20 %. Without a GPU there is no
prediction, and only the flow is tested (--tiny).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kernwright.diagnose.chain import OpCall, calls_of, find_chains
from kernwright.diagnose.compare.label_runs import LabelRuns, load_sides
from kernwright.diagnose.compare.measure import median_step
from kernwright.diagnose.perf_dump.dump import PerfDump
from kernwright.diagnose.trace.trace import Annotation, Trace, read_trace

HERE = Path(__file__).resolve().parent
CHAIN, OP, OP_CALLS = "chain", "op", 5  # copies of flux_blocks.py's values; importing it needs diffusers
FUNCTIONS = {"AdaLayerNormZero": "zero", "AdaLayerNormZeroSingle": "single", "AdaLayerNormContinuous": "continuous"}
LABEL, TRACE = "swap", "trace.json.gz"
ALLOWED = 0.2  # relative difference between the measured and the predicted saving


def swaps() -> list[str]:
    return [
        f"diffusers.models.normalization:{name}.forward={HERE / 'flux_adapters.py'}:{function}"
        for name, function in FUNCTIONS.items()
    ]


def predicted_saving_ms(trace: Trace) -> tuple[float, float]:
    """Return the GPU time of the chains of one step, and that of the op in their place, in ms."""
    calls = [call for thread in calls_of(trace) for call in thread]
    chained = list(inside(calls, [each for each in trace.annotations if each.name == CHAIN]))
    chains = [chain for chain in find_chains(chained) if chain.pattern.name == "norm_modulation"]
    ranges = [each for each in trace.annotations if each.name.startswith(f"{OP} ")]
    op_us = 0.0
    for each in ranges:  # its name has the number of calls of this shape in a step
        times = [event.duration_us for call in inside(calls, [each]) for event in call.events]
        op_us += sum(times) * int(each.name.split()[1]) / OP_CALLS
    return sum(chain.duration_us for chain in chains) / 1e3, op_us / 1e3


def inside(calls: Sequence[OpCall], ranges: Sequence[Annotation]) -> Iterator[OpCall]:
    """Yield the calls that were launched within one of the ranges."""
    for call in calls:
        launch = call.events[0].launch
        if launch is not None and any(each.start_us <= launch.start_us <= each.end_us for each in ranges):
            yield call


def fastest_step(dump: PerfDump) -> float | None:
    return min((step.duration_ms for step in dump.denoise_steps_ms), default=None)


def measured_saving_ms(
    base: LabelRuns, swapped: LabelRuns, step: Callable[[PerfDump], float | None] = median_step
) -> tuple[float, list[float]]:
    """Return the step without the swap (median of the turns), and the saving of each turn, in ms."""
    before, after = base.by_turn(), swapped.by_turn()
    pairs = [(step(before[turn]), step(after[turn])) for turn in before if turn in after]
    known = [(left, right) for left, right in pairs if left is not None and right is not None]
    return statistics.median(left for left, _ in known), [left - right for left, right in known]


def run_program(folder: Path, options: Sequence[str], turns: int) -> int:
    """Run the turns through the command line. Return its exit status."""
    program = [sys.executable, str(HERE / "flux_blocks.py"), "--perf-dump", str(folder / "dump.json"), *options]
    command = [sys.executable, "-m", "kernwright.cli.main", "run", "--turns", str(turns), "--label", LABEL]
    command += [word for swap in swaps() for word in ("--swap", swap)]
    own = os.environ | {"KERNWRIGHT_DUMPS": str(folder / "dumps")}
    return subprocess.run([*command, "--", *program], env=own, check=False).returncode


def run_all(folder: Path, options: Sequence[str], turns: int) -> int:
    """Record the trace, then run the turns. Return the exit status of the turns."""
    traced = [sys.executable, str(HERE / "flux_blocks.py"), "--trace", str(folder / TRACE), *options]
    subprocess.run(traced, check=True)
    return run_program(folder, options, turns)


def evaluate(folder: Path, is_tiny: bool) -> dict[str, Any]:
    """Return the figures of a run. Without a GPU there is no prediction."""
    dumps = folder / "dumps" / "flux-blocks"
    sides = load_sides([str(dumps / "base"), str(dumps / LABEL)])
    step, savings = measured_saving_ms(*sides)
    fastest, at_full_clock = measured_saving_ms(*sides, step=fastest_step)
    figures = {
        "about": about(next(iter(sides[0].by_turn().values()))),
        "step_ms": step, "saving_ms": statistics.median(savings), "turns_ms": savings,
        "fastest_step_ms": fastest, "fastest_saving_ms": statistics.median(at_full_clock),
    }  # fmt: skip
    if not is_tiny:
        chains, op = predicted_saving_ms(read_trace(folder / TRACE))
        figures |= {"chains_ms": chains, "op_ms": op, "off": figures["saving_ms"] / (chains - op) - 1}
    return figures


def about(dump: PerfDump) -> str:
    """Return the GPU, the libraries and the date of a run."""
    made = dump.kernwright
    libraries = [f"{name} {version}" for name, version in (made.libraries if made else {}).items()]
    return "; ".join([*(made.gpus if made else ()), ", ".join(libraries), (dump.timestamp or "")[:10]])


def show(figures: dict[str, Any]) -> int:
    """Print the figures. Return the exit status."""
    step, saving = figures["step_ms"], figures["saving_ms"]
    turns = ", ".join(f"{each:.3f}" for each in figures["turns_ms"])
    print(f"step {step:.3f} ms; measured saving {saving:.3f} ms, {100 * saving / step:.1f} % (turns: {turns})")
    print(f"fastest step {figures['fastest_step_ms']:.3f} ms; measured saving {figures['fastest_saving_ms']:.3f} ms")
    if "off" not in figures:
        print("no prediction without a GPU")
        return 0
    chains, op = figures["chains_ms"], figures["op_ms"]
    print(
        f"predicted saving {chains - op:.3f} ms: chains {chains:.3f} ms, op {op:.3f} ms; "
        f"measured is {100 * figures['off']:+.1f} %"
    )
    return int(abs(figures["off"]) > ALLOWED)


def report(folder: Path, asked: argparse.Namespace) -> int:
    options = [*asked.options, *(["--tiny"] if asked.tiny else [])]
    if asked.evaluate is None and (status := run_all(folder, options, asked.turns)):
        return status
    figures = evaluate(folder, "--tiny" in options)
    if asked.record is not None:
        asked.record.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return show(figures)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="a small model on a CPU")
    parser.add_argument("--keep", type=Path, help="folder for the trace and the perf dumps")
    parser.add_argument("options", nargs="*", help="options of flux_blocks.py, after --")
    parser.add_argument("--evaluate", type=Path, help="folder of a kept run; nothing runs again")
    parser.add_argument("--record", type=Path, help="file for the figures")
    asked = parser.parse_args()
    if (kept := asked.evaluate or asked.keep) is not None:
        kept.mkdir(parents=True, exist_ok=True)
        return report(kept, asked)
    with tempfile.TemporaryDirectory() as folder:
        return report(Path(folder), asked)


if __name__ == "__main__":
    sys.exit(main())
