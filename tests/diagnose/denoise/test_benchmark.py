"""The denoise benchmark: every preset at tiny widths on a CPU, with the real structure and the real loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from kernwright.core.errors import KernwrightError
from kernwright.diagnose.denoise.benchmark import DenoiseBenchmark, DenoiseRequest
from kernwright.diagnose.denoise.initialisation import materialise, without_weights
from kernwright.diagnose.denoise.layers import cut_layers
from kernwright.diagnose.denoise.observed_calls import observed_calls
from kernwright.diagnose.presets.catalog import find_preset

# Calls of the transformer in each step: passes that diffusers makes one after the other. LTX-2 makes two as one batch.
CALLS_A_STEP = {
    "flux": 1, "flux2": 1, "hunyuanvideo": 1, "ltx23-one-stage": 3, "qwen": 2, "qwen-edit": 2, "wan-t2v": 2,
    "wan-ti2v": 2, "zimage": 1,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # threads cost more than they give at these sizes
    yield
    torch.set_num_threads(before)


def benchmark(name: str, **options: Any) -> DenoiseBenchmark:
    given = {"device": "cpu", "tiny": True, "warmup": 0} | options
    made = DenoiseBenchmark(DenoiseRequest(name=name, preset=find_preset(name)[1], **given), lambda what, steps: print)
    made.prepare()
    return made


def run_counted(made: DenoiseBenchmark) -> tuple[Any, list[tuple[int, dict[str, Any]]]]:
    """Return the result of a run, and the calls of each transformer with their named arguments."""
    calls: list[tuple[int, dict[str, Any]]] = []
    with ExitStack() as stack:
        for at, transformer in enumerate(made.pipeline.transformers):

            def count(call: Any, arguments: Any, named: dict[str, Any], at: int = at) -> Any:
                calls.append((at, named))
                return call(*arguments, **named)

            stack.enter_context(observed_calls(transformer, count))
        return made.run(), calls


@pytest.mark.parametrize("name", sorted(CALLS_A_STEP))
def test_a_tiny_preset_runs_end_to_end(name: str) -> None:
    made = benchmark(name)
    result, calls = run_counted(made)
    dump, steps = result.dump, find_preset(name)[1].shrunk().request.steps
    assert result.finite == {"latents": True, "output": True}
    assert len(dump.denoise_steps_ms) == steps and len(calls) == steps * CALLS_A_STEP[name]
    stages = [stage.name for stage in dump.steps]
    assert stages[0] == "LoadingStage" and {"TextEncodingStage", "DenoisingStage", "DecodingStage"} <= set(stages)
    own = sum(stage.duration_ms for stage in dump.steps[1:])
    assert own <= (dump.total_duration_ms or 0), "the end to end time holds every stage of the run"
    held = dump.kernwright
    assert held is not None and not held.gradients and not held.profiled
    assert held.workload["steps"] == steps and held.workload["tiny"] and held.settings["compile"] == "off"


@pytest.mark.parametrize("name", ["ltx2", "ltx23-two-stage"])
def test_the_second_stage_has_four_times_the_tokens(name: str) -> None:
    result, calls = run_counted(benchmark(name))
    assert result.finite == {"latents": True, "output": True}
    tokens = [named["hidden_states"].shape[1] for _, named in calls]
    frames, height, width = 2, 128 // 32, 128 // 32
    assert tokens[-1] == frames * height * width == 4 * tokens[0]
    assert Counter(tokens)[tokens[-1]] == 3
    names = [stage.name for stage in result.dump.steps]
    assert names.index("DenoisingStage") < names.index("LatentUpsamplingStage") < names.index("RefinementStage")


def test_both_experts_of_wan_take_part() -> None:
    _, calls = run_counted(benchmark("wan-t2v"))
    experts = [at for at, _ in calls]
    assert experts == sorted(experts) and set(experts) == {0, 1}


def test_weights_are_seeded_and_differ_between_components() -> None:
    first, again = benchmark("wan-t2v").pipeline.transformers, benchmark("wan-t2v").pipeline.transformers
    for own, other in zip(first[0].parameters(), again[0].parameters(), strict=True):
        assert torch.equal(own, other) and not own.requires_grad
    assert not torch.equal(first[0].proj_out.weight, first[1].proj_out.weight)
    assert first[0].proj_out.weight.dtype == torch.bfloat16
    assert first[0].scale_shift_table.dtype == torch.float32, "the class keeps it"


def test_activations_stay_small_through_sixty_layers() -> None:
    from diffusers import QwenImageTransformer2DModel

    with without_weights():
        model = QwenImageTransformer2DModel(
            num_layers=60,
            num_attention_heads=2,
            attention_head_dim=16,
            joint_attention_dim=32,
            axes_dims_rope=(4, 4, 8),
        )
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    materialise(model, "cpu", torch.bfloat16, 1)
    seen: list[float] = []
    for block in model.transformer_blocks:
        block.register_forward_hook(lambda block, given, found: seen.append(found[1].float().std().item()))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        model(
            hidden_states=torch.randn(1, 16, 64, generator=generator).bfloat16(),
            encoder_hidden_states=torch.randn(1, 4, 32, generator=generator).bfloat16(),
            encoder_hidden_states_mask=None,
            timestep=torch.ones(1, dtype=torch.bfloat16),
            img_shapes=[[(1, 4, 4)]],
        )
    assert len(seen) == 60 and 0.9 < seen[-1] / seen[0] < 1.1, "it is 1.28 without scaled branches"


def test_a_compiled_run_has_its_compilation_as_a_stage() -> None:
    made = benchmark("qwen", compile="regional", backend="eager", warmup=1)
    dump = made.run().dump
    assert [stage.name for stage in dump.steps].count("CompilationStage") == 2, "one for each pass"
    assert dump.kernwright is not None and dump.kernwright.settings["compile"] == "regional"
    inputs = dump.meta["transformer_inputs"]
    assert inputs["hidden_states"] == [1, 16, 64] and inputs["encoder_hidden_states"] == [1, 8, 32]


def test_local_weights_are_loaded(tmp_path: Path) -> None:
    saved = benchmark("zimage").pipeline.transformers[0]
    saved.save_pretrained(tmp_path / "transformer")
    made = benchmark("zimage", weights=tmp_path)
    assert made.pipeline.origins["transformer"] == "loaded" and made.pipeline.origins["vae"] == "random"
    for own, other in zip(made.pipeline.transformers[0].parameters(), saved.parameters(), strict=True):
        assert torch.equal(own, other)
    (tmp_path / "empty").mkdir()
    with pytest.raises(KernwrightError, match="has no folder `transformer`"):
        benchmark("zimage", weights=tmp_path / "empty")


def test_an_interrupted_run_leaves_the_pipeline_as_it_was() -> None:
    made = benchmark("qwen")

    def interrupt(what: str, steps: int) -> Any:
        def stop(done: int) -> None:
            raise KeyboardInterrupt

        return stop

    made._phase = interrupt
    with pytest.raises(KeyboardInterrupt):
        made.run()
    pipeline = made.pipeline.pipeline
    assert not {"progress_bar", "encode_prompt"} & pipeline.__dict__.keys() and "decode" not in pipeline.vae.__dict__
    made._phase = lambda what, steps: print
    assert len(made.run().dump.denoise_steps_ms) == 2


@pytest.mark.parametrize(
    ("text", "full", "expected"),
    [
        ("12", [19, 38], [4, 8]), ("4+8", [19, 38], [4, 8]), ("57", [19, 38], [19, 38]), ("2", [19, 38], [1, 1]),
        ("2", [8, 48], [1, 1]), ("3", [8, 48], [1, 2]), ("6", [60], [6]),
    ],
)  # fmt: skip
def test_layers_are_shared_in_proportion(text: str, full: list[int], expected: list[int]) -> None:
    assert cut_layers(text, full) == expected


@pytest.mark.parametrize(("text", "full"), [("0", [60]), ("61", [60]), ("1", [19, 38]), ("4+8", [60]), ("x", [60])])
def test_layers_that_a_model_does_not_have_are_refused(text: str, full: list[int]) -> None:
    with pytest.raises(KernwrightError, match="--layers"):
        cut_layers(text, full)


def test_a_cut_model_has_the_layers_that_were_asked_for() -> None:
    flux = find_preset("flux")[1]
    assert flux.diffusers is not None
    request = DenoiseRequest(name="flux", preset=flux, device="cpu", layers="12")
    assert DenoiseBenchmark(request, lambda what, steps: print).layers == [4, 8]
