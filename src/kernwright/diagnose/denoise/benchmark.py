"""DenoiseBenchmark: one preset, prepared once and run as often as asked, with a perf dump of each run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from kernwright.core.errors import EnvironmentProblem, KernwrightError
from kernwright.diagnose.denoise.compilation import CompileMode, compile_transformer, graph_safe
from kernwright.diagnose.denoise.components import ComponentSource
from kernwright.diagnose.denoise.layers import cut_layers
from kernwright.diagnose.denoise.libraries import load_libraries
from kernwright.diagnose.denoise.observed_calls import observed_calls, tensor_shapes
from kernwright.diagnose.denoise.pipeline import DENOISING, REFINEMENT, PresetPipeline, make_pipeline
from kernwright.diagnose.denoise.profile import StepProfile
from kernwright.diagnose.denoise.stages import StepEnd, recorded_stages
from kernwright.diagnose.perf_dump.dump import PerfDump, StageTime
from kernwright.diagnose.perf_dump.provenance import collect_provenance
from kernwright.diagnose.perf_dump.recorder import DumpRecorder
from kernwright.diagnose.presets.preset import DiffusersTable, GenerationRequest, Preset

Phase = Callable[[str, int], StepEnd]  # announces a phase and its number of steps; returns a function for each step
LEAST_STEPS = 2  # steps of a warm-up: some schedules cannot have fewer
LOADING, COMPILING, UPSAMPLING = "LoadingStage", "CompilationStage", "LatentUpsamplingStage"


@dataclass(frozen=True, kw_only=True)
class DenoiseRequest:
    """The preset to run, and its settings.

    Attributes:
        layers: layers of each kind, as --layers names them; None for all.
        warmup: denoising steps of the run before the measured ones; 0 for no such run.
        profiled_steps: steps to record with the profiler after one more step; None for a benchmark.
        backend: the compiler.
    """

    name: str
    preset: Preset
    device: str
    label: str = ""
    layers: str | None = None
    steps: int | None = None
    compile: CompileMode = "off"
    weights: Path | None = None
    tiny: bool = False
    warmup: int = 2
    profiled_steps: int | None = None
    backend: str = "inductor"
    preflight: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DenoiseResult:
    """One run.

    Attributes:
        finite: by name, True if the latents or the decoded output have neither NaN nor infinity.
        profile: the recorded steps of a profiled run.
    """

    dump: PerfDump
    finite: dict[str, bool]
    profile: StepProfile | None = None


class DenoiseBenchmark:
    """A preset on a device.

    `prepare` constructs the pipeline, compiles its transformers and runs it once, which is not counted. `run` measures.
    """

    def __init__(self, request: DenoiseRequest, phase: Phase) -> None:
        preset = request.preset.shrunk() if request.tiny else request.preset
        if preset.diffusers is None:
            raise KernwrightError(f"preset {request.name} has no [diffusers]", "run it with sglang, or add the table")
        if request.tiny and not request.preset.tiny:
            raise KernwrightError(f"preset {request.name} has no [tiny]", "add the table, or leave out --tiny")
        self.request = request
        self._phase = phase
        self._table, self.layers = _cut(preset.diffusers, request.layers)
        steps = {"steps": request.steps} if request.steps is not None else {}
        self._generation = preset.request.model_copy(update=steps)
        self._setup: list[StageTime] = []
        self._shapes: dict[str, Any] = {}
        self._made: PresetPipeline | None = None

    @property
    def pipeline(self) -> PresetPipeline:
        if self._made is None:
            raise KernwrightError("the pipeline is not prepared", "call prepare() first")
        return self._made

    def prepare(self) -> None:
        """Construct, compile and warm up the pipeline."""
        recorder = DumpRecorder(self.request.device)
        done = self._phase(f"{self.request.name}: loading", 1)
        load_libraries()
        with recorder.stage(LOADING):
            self._made = self._load()
        done(1)
        if self.request.compile != "off":
            for transformer in self._made.transformers:
                compile_transformer(transformer, self.request.compile, self.request.backend)
        if self.request.warmup or self.request.compile != "off":
            self._warm_up(recorder)
        compiled = (COMPILING,) if self.request.compile != "off" else ()
        self._setup = [stage for stage in recorder.stages if stage.name in (LOADING, *compiled)]

    def _load(self) -> PresetPipeline:
        import torch

        source = ComponentSource(
            device=self.request.device,
            seed=self._generation.seed,
            prompt=self._generation.prompt,
            weights=self.request.weights,
        )
        try:
            return make_pipeline(self._table, source)
        except torch.OutOfMemoryError as error:
            raise EnvironmentProblem(
                f"{self.request.name} does not fit into the memory of {self.request.device}: {error}",
                "use fewer layers (--layers), or a device with more memory",
            ) from error

    def _warm_up(self, recorder: DumpRecorder) -> None:
        """Run the pipeline once with few steps. A transformer is compiled in its first call with new shapes."""
        few = self._generation.model_copy(update={"steps": max(LEAST_STEPS, self.request.warmup)})
        name = "compiling and warming up" if self.request.compile != "off" else "warming up"

        seen: set[str] = set()

        def first(at: int, call: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
            shapes = tensor_shapes(named)
            self._shapes = self._shapes or shapes
            with nullcontext() if (key := f"{at} {shapes}") in seen else recorder.stage(COMPILING):
                seen.add(key)
                return call(*arguments, **named)

        with ExitStack() as stack:
            for at, transformer in enumerate(self.pipeline.transformers):
                stack.enter_context(observed_calls(transformer, partial(first, at)))
            self._generate(few, recorder, name)

    def run(self) -> DenoiseResult:
        """Measure one run, from the prompt to the decoded output."""
        recorder = DumpRecorder(self.request.device)
        wanted = self.request.profiled_steps
        profile = StepProfile(wanted, self.request.device) if wanted is not None else None
        recorder.checkpoint("before_forward")
        with recorder.run():
            output, latents = self._generate(self._generation, recorder, "denoising", profile)
            recorder.checkpoint("after_forward")
        finite = {"latents": _is_finite(latents), "output": _is_finite(output)}
        dump = self._dump(recorder, finite)
        return DenoiseResult(dump=dump, finite=finite, profile=profile)

    def _generate(
        self, request: GenerationRequest, recorder: DumpRecorder, what: str, profile: StepProfile | None = None
    ) -> tuple[Any, Any]:
        """Return the decoded output and the latents before the decoder."""
        made, refinement = self.pipeline, self._table.refinement
        say = partial(self._phase, f"{self.request.name}: {what}")
        with ExitStack() as stack:
            if self.request.compile == "max-autotune":
                for transformer in made.transformers:
                    stack.enter_context(observed_calls(transformer, graph_safe))
            around = (lambda: profile) if profile is not None else nullcontext
            ends = say(request.steps)
            on_step = partial(_end_step, ends, profile)
            with recorded_stages(made.pipeline, recorder, DENOISING, around, on_step) as last:
                arguments = made.arguments(request)
                if refinement is None:
                    return made.pipeline(**arguments, return_dict=False)[0], last.get("DecodingStage")
                video, audio = made.pipeline(**arguments | {"output_type": "latent"}, return_dict=False)
            with recorder.stage(UPSAMPLING):
                sizes = {name: arguments[name] for name in ("width", "height", "num_frames")}
                video = made.upsampler(latents=video, output_type="latent", return_dict=False, **sizes)[0]
            with recorded_stages(made.pipeline, recorder, REFINEMENT, nullcontext, say(len(refinement.sigmas))) as last:
                second = made.refinement_arguments(refinement, request)
                found = made.pipeline(**second, latents=video, audio_latents=audio, return_dict=False)
            return found[0], last.get("DecodingStage")

    def _dump(self, recorder: DumpRecorder, finite: dict[str, bool]) -> PerfDump:
        request, generation = self.request, self._generation
        workload = {
            "width": generation.width,
            "height": generation.height,
            "frames": generation.frames,
            "steps": generation.steps,
            "guidance": self._table.guidance,
            "guidance_scale": generation.guidance,
            "layers": self.layers,
            "tiny": request.tiny,
            "dtype": "bfloat16",
            "device": request.device.partition(":")[0],
        }
        settings = {
            "engine": "diffusers",
            "compile": request.compile,
            "warmup_steps": request.warmup,
            "weights": str(request.weights) if request.weights else "random",
            "components": self.pipeline.origins,
        }
        provenance = collect_provenance(
            label=request.label,
            preset=request.name,
            workload=workload,
            settings=settings,
            machine=dict(request.preflight),
            profiled=request.profiled_steps is not None,
        )
        meta = {"model": request.preset.model, "prompt": generation.prompt, "finite": finite}
        dump = recorder.dump(provenance, meta | {"transformer_inputs": self._shapes})
        dump.steps = [*self._setup, *dump.steps]
        return dump


def _cut(table: DiffusersTable, layers: str | None) -> tuple[DiffusersTable, list[int]]:
    """Return the table with fewer layers in each transformer, and the layers that it has then, kind by kind."""
    keys = table.components["transformer"].layers
    full = [table.components["transformer"].config[key] for key in keys]
    if layers is None:
        return table, full
    if not keys:
        raise KernwrightError("the preset does not say which layers can be cut", "add `layers` to its transformer")
    numbers = cut_layers(layers, full)
    cut = {
        name: each.model_copy(update={"config": each.config | dict(zip(keys, numbers, strict=True))})
        if each.layers == keys
        else each
        for name, each in table.components.items()
    }
    return table.model_copy(update={"components": cut}), numbers


def _end_step(announce: StepEnd, profile: StepProfile | None, done: int) -> None:
    announce(done)
    if profile is not None:
        profile.step()


def _is_finite(found: Any) -> bool:
    import torch

    if isinstance(found, (list, tuple)):
        return all(map(_is_finite, found))
    return bool(torch.isfinite(found).all()) if isinstance(found, torch.Tensor) else True
