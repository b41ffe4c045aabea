"""One step of three diffusion models on a GPU: eager and compiled, wall time, device time and traces.

    python benchmarks/bench_denoise.py [--out DIR] [--models flux,qwen,wan-t2v] [--seconds 240]
    python benchmarks/bench_denoise.py --tiny --device cpu --backend eager --out DIR     # try the procedure
    python benchmarks/bench_denoise.py --page DIR/denoise.json --traces DIR              # write docs/denoise.md

A model has its published widths, random weights and fewer layers: the blocks repeat, so the shares of a step hold. A
step is one call of the transformer with the arguments that its pipeline gives it first. Wall is the median of ten
steps, each with a synchronisation. Device is the sum of the kernels of the traced steps, per step. Then the whole
pipeline runs once, stage by stage.

DIR gets denoise.json and a trace of each model and mode. The record is written again after each model. With --page, the
record and the page are written to docs/, with the savings that `kernwright hotspots` predicts from the traces.

Exit status: 0 if every ratio is within 5 % of that of benchmarks/comparisons/denoise_h200.json, 1 if not, or if a model
failed.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = Path(__file__).with_name("comparisons") / "denoise_h200.json"
RECORD = "denoise.json"
SWAP_RECORD = "swap.json"  # the record of bench_swap.py, for the same page
TOLERANCE = 0.05
STEPS, WARM_UP, TRACED = 10, 3, 2
RUN_STEPS = 3  # denoising steps of the run of the whole pipeline


@dataclass(frozen=True)
class Model:
    """A preset, cut."""

    preset: str
    title: str
    layers: str
    size: tuple[int, int] | None = None  # width and height, if not the preset's


MODELS = (
    Model("flux", "FLUX.1 1024x1024", "4+8"),
    Model("qwen", "Qwen-Image 1024x1024", "6"),
    Model("wan-t2v", "Wan 14B widths, 832x480, 81 frames", "3", (832, 480)),
)


class Captured(Exception):
    """Ends a run of a pipeline at the first call of its transformer."""


class StepBenchmark:
    """One model on one device."""

    def __init__(self, model: Model, options: argparse.Namespace) -> None:
        from kernwright.diagnose.denoise.benchmark import DenoiseBenchmark, DenoiseRequest
        from kernwright.diagnose.presets.catalog import find_preset

        preset = find_preset(model.preset)[1]
        if model.size and not options.tiny:
            size = {"width": model.size[0], "height": model.size[1]}
            preset = preset.model_copy(update={"request": preset.request.model_copy(update=size)})
        self.model, self.options = model, options
        self.benchmark = DenoiseBenchmark(
            DenoiseRequest(
                name=model.preset, preset=preset, device=options.device, tiny=options.tiny, warmup=0, steps=RUN_STEPS,
                layers=None if options.tiny else model.layers,
            ),
            lambda what, steps: lambda done: None,
        )  # fmt: skip
        self.benchmark.prepare()
        self.transformer = self.benchmark.pipeline.transformers[0]
        self.named = self._first_call()

    def _first_call(self) -> dict[str, Any]:
        """Return the arguments of the transformer's first call in the pipeline."""
        from kernwright.diagnose.denoise.observed_calls import observed_calls

        found: dict[str, Any] = {}

        def capture(call: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
            assert not arguments, "the pipelines call their transformers by name"
            found.update(named)
            raise Captured

        try:
            with observed_calls(self.transformer, capture):
                self.benchmark.run()
        except Captured:
            return found
        raise RuntimeError("the pipeline did not call its transformer")

    def step(self) -> Any:
        return self.transformer(**self.named)

    def wait(self) -> None:
        import torch

        if self.options.device == "cuda":
            torch.cuda.synchronize()

    def seconds(self, call: Callable[[], Any]) -> float:
        self.wait()
        begin = time.perf_counter()
        call()
        self.wait()
        return time.perf_counter() - begin

    def measure(self, mode: str) -> dict[str, Any]:
        """Return the times of one mode, and write its trace."""
        import torch

        from kernwright.diagnose.denoise.compilation import compile_transformer

        if mode != "eager":
            compile_transformer(self.transformer, mode, self.options.backend)  # type: ignore[arg-type]
        with torch.no_grad():
            first = self.seconds(self.step)
            for _ in range(WARM_UP):
                self.step()
            walls = [1e3 * self.seconds(self.step) for _ in range(STEPS)]
            trace = self.options.out / f"{self.model.preset}_{mode}.json.gz"
            self._record(trace)
        held = {"first_call_s": first, "wall_ms": walls, "median_ms": statistics.median(walls), "trace": trace.name}
        return held | (device_times(trace) if self.options.device == "cuda" else {})

    def _record(self, path: Path) -> None:
        from kernwright.diagnose.denoise.profile import StepProfile

        profile = StepProfile(TRACED, self.options.device)
        with profile:
            for _ in range(1 + TRACED):
                self.step()
                self.wait()
                profile.step()
        profile.write(path)

    def run_whole(self) -> dict[str, Any]:
        """Run the pipeline from the prompt to the decoded output: once to warm up, then measured."""
        self.benchmark.run()
        result = self.benchmark.run()
        return {
            "stages_ms": [[stage.name, stage.duration_ms] for stage in result.dump.steps],
            "total_ms": result.dump.total_duration_ms,
            "steps_ms": [step.duration_ms for step in result.dump.denoise_steps_ms],
            "finite": result.finite,
            "peak_memory_mb": result.dump.peak_memory_mb,
        }


def device_times(trace: Path) -> dict[str, float]:
    """Return the milliseconds of kernels in a step, and of those that are neither GEMM nor attention."""
    from kernwright.diagnose.category import category_of
    from kernwright.diagnose.trace.trace import read_trace

    times: dict[str, float] = {}
    for event in read_trace(trace).gpu:
        category = category_of(event)
        times[category] = times.get(category, 0.0) + event.duration_us / 1e3 / TRACED
    rest = sum(taken for category, taken in times.items() if category not in ("GEMM", "attention"))
    return {"device_ms": sum(times.values()), "memory_bound_ms": rest}


def measure_model(model: Model, options: argparse.Namespace) -> dict[str, Any]:
    import torch

    from kernwright.diagnose.denoise.observed_calls import tensor_shapes

    begin = time.monotonic()
    made = StepBenchmark(model, options)
    held: dict[str, Any] = {
        "title": model.title,
        "layers": made.benchmark.layers,
        "inputs": tensor_shapes(made.named),
        "prepare_s": time.monotonic() - begin,
        "modes": {},
    }
    try:
        held["modes"]["eager"] = made.measure("eager")
        held["run"] = made.run_whole()
        held["modes"]["regional"] = made.measure("regional")
    finally:
        del made
        gc.collect()
        torch._dynamo.reset()
        if options.device == "cuda":
            torch.cuda.empty_cache()
    held["ratio"] = held["modes"]["eager"]["median_ms"] / held["modes"]["regional"]["median_ms"]
    held["seconds"] = time.monotonic() - begin
    return held


def measure_all(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the models one after the other. A model that fails does not end the others."""
    from kernwright.diagnose.doctor.preflight import preflight
    from kernwright.diagnose.perf_dump.provenance import collect_provenance, commit_hash

    begin = time.monotonic()
    checked = preflight(None if options.device == "cuda" else 0, allow_busy=True)  # the record says who else uses it
    checked.pin()
    import torch

    from kernwright.diagnose.denoise.libraries import load_libraries

    if options.device == "cuda":
        torch.zeros(1, device="cuda")
    load_libraries()
    found = collect_provenance()
    record: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": commit_hash(), "libraries": found.libraries,
        "gpus": found.gpus, "tiny": options.tiny, "machine": checked.record(), "models": {}, "failed": {},
    }  # fmt: skip
    for model in MODELS:
        if model.preset not in options.models:
            continue
        if time.monotonic() - begin > options.seconds:
            record["failed"][model.preset] = f"not begun: {options.seconds:.0f} s had passed"
            continue
        try:
            record["models"][model.preset] = measure_model(model, options)
        except Exception:
            record["failed"][model.preset] = traceback.format_exc()
            traceback.print_exc()
        record["seconds"] = time.monotonic() - begin
        write_json(options.out / RECORD, record)
        print(f"{model.title}: after {record['seconds']:.0f} s", flush=True)
    return record


def write_json(path: Path, held: Any) -> None:
    path.write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")


def judge_ratios(record: dict[str, Any]) -> int:
    """Print the table of the record. Return the exit status."""
    from denoise_page import step_table

    reference = json.loads(REFERENCE.read_text(encoding="utf-8"))["models"]
    print("\n".join(step_table(record, reference)))
    for name, problem in record["failed"].items():
        print(f"{name} failed: {problem.splitlines()[-1]}")
    off = [
        name for name, held in record["models"].items()
        if abs(held["ratio"] / reference[name]["ratio"] - 1) > TOLERANCE
    ]  # fmt: skip
    return int(bool(off or record["failed"]))


def predicted_savings(traces: Path, record: dict[str, Any]) -> dict[str, Any]:
    """Return what `kernwright hotspots` predicts from each eager trace, by model. Times are in ms a step."""
    from kernwright.diagnose.hotspots.as_json import as_json
    from kernwright.diagnose.hotspots.ranking import diagnose
    from kernwright.diagnose.trace.trace import read_trace

    found = {}
    for name, held in record["models"].items():
        told = as_json(diagnose(read_trace(traces / held["modes"]["eager"]["trace"])))
        found[name] = {
            "device_ms": told["gpu_us"] / 1e3 / TRACED,
            "saving_ms": [told["saving"][key] / 1e3 / TRACED for key in ("us", "low_us", "high_us")],
            "hotspots": [
                {
                    "name": each["name"], "status": each["status"], "share": each["share"],
                    "saving_ms": [each["saving"][key] / 1e3 / TRACED for key in ("us", "low_us", "high_us")],
                    "fast_paths": [path["name"] for path in each["fast_paths"]],
                }
                for each in told["hotspots"]
                if each["saving"] is not None and each["status"] in ("covered, off", "partly")
            ],
        }  # fmt: skip
    return found


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=Path(".kernwright/denoise"), help="folder of the record and traces")
    parser.add_argument("--models", default=",".join(model.preset for model in MODELS), help="presets, with commas")
    parser.add_argument("--seconds", type=float, default=240, help="begin no model after so many seconds")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true", help="small versions of the models")
    parser.add_argument("--backend", default="inductor", help="compiler")
    parser.add_argument("--page", type=Path, help="write the page of this record")
    parser.add_argument("--traces", type=Path, help="folder of the traces; default: that of the record")
    options = parser.parse_args(words)
    sys.path.insert(0, str(ROOT / "benchmarks"))
    if options.page is not None:
        from denoise_page import page

        record = json.loads(options.page.read_text(encoding="utf-8"))
        if "savings" not in record:
            record["savings"] = predicted_savings(options.traces or options.page.parent, record)
        checks = record["machine"]["checks"]  # the repository keeps no paths of a machine
        record["machine"]["checks"] = {
            name: check if isinstance(check, str) else check["status"] for name, check in checks.items()
        }
        write_json(ROOT / "docs" / RECORD, record)
        swap = ROOT / "docs" / SWAP_RECORD
        text = page(
            record,
            json.loads(REFERENCE.read_text(encoding="utf-8")),
            json.loads(swap.read_text(encoding="utf-8")) if swap.is_file() else None,
        )
        (ROOT / "docs" / "denoise.md").write_text(text, encoding="utf-8")
        return 0
    options.models = options.models.split(",")
    options.out.mkdir(parents=True, exist_ok=True)
    return judge_ratios(measure_all(options))


if __name__ == "__main__":
    sys.exit(main())
