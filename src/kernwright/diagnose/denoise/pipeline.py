"""A pipeline of diffusers that runs a preset."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any

from kernwright.core.errors import KernwrightError
from kernwright.diagnose.denoise.components import ComponentSource, Origin, make_components
from kernwright.diagnose.denoise.libraries import find_class
from kernwright.diagnose.presets.preset import DiffusersTable, GenerationRequest, RefinementTable

DENOISING, REFINEMENT = "DenoisingStage", "RefinementStage"
BLOCKS = "spatio_temporal_guidance_blocks"  # numbers of layers, among the arguments of some pipelines


@dataclass(frozen=True, kw_only=True)
class PresetPipeline:
    """The pipeline of a preset with all its components.

    Attributes:
        upsampler: the pipeline between the two stages of a two-stage model.
        origins: the origin of each component in words.
    """

    table: DiffusersTable
    pipeline: Any
    device: str
    upsampler: Any = None
    origins: dict[str, Origin] = field(default_factory=dict)

    @property
    def transformers(self) -> list[Any]:
        """The denoising models: one, or two experts."""
        return [self.pipeline.components[name] for name in self.table.components if name.startswith("transformer")]

    def arguments(self, request: GenerationRequest) -> dict[str, Any]:
        """Return the arguments of the pipeline's call, for the first stage of a two-stage model."""
        scale = self.table.refinement.scale if self.table.refinement else 1
        found: dict[str, Any] = {
            "prompt": request.prompt,
            "width": request.width // scale,
            "height": request.height // scale,
            "num_inference_steps": request.steps,
            self.table.guidance_argument: request.guidance,
            "output_type": "pt",
            "generator": self._generator(request.seed),
        }
        accepted = inspect.signature(self.pipeline.__call__).parameters
        if "num_frames" in accepted:
            found["num_frames"] = request.frames
        if request.guidance_2 is not None:
            found["guidance_scale_2"] = request.guidance_2
        if self.table.guidance == "classifier-free" and request.negative_prompt is not None:
            found["negative_prompt"] = request.negative_prompt
        if request.image is not None:
            found["image"] = random_image(request)
        found |= self._fitted(self.table.call)
        if unknown := sorted(set(found) - set(accepted)):
            raise KernwrightError(
                f"{type(self.pipeline).__name__} takes no {', '.join(unknown)}", "correct the preset's call"
            )
        return found

    def refinement_arguments(self, stage: RefinementTable, request: GenerationRequest) -> dict[str, Any]:
        """Return the arguments of the second stage, without its latents."""
        sizes = {"width": request.width, "height": request.height}
        steps = {"sigmas": stage.sigmas, "num_inference_steps": len(stage.sigmas)}
        scale = {self.table.guidance_argument: stage.guidance}
        return self.arguments(request) | sizes | steps | scale | self._fitted(stage.call)

    def _fitted(self, call: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with each number of a layer limited to the last layer of a cut model."""
        if BLOCKS not in call:
            return call
        most = len(self.transformers[0].transformer_blocks) - 1
        return call | {BLOCKS: sorted({min(block, most) for block in call[BLOCKS]})}

    def _generator(self, seed: int) -> Any:
        import torch

        return torch.Generator(self.device).manual_seed(seed)


def make_pipeline(table: DiffusersTable, source: ComponentSource) -> PresetPipeline:
    """Return the pipeline of a preset, on its device."""
    kind = find_class(f"diffusers.{table.pipeline}")
    components, origins = make_components(table.components, source)
    wanted = inspect.signature(kind.__init__).parameters
    missing = [
        name for name, each in wanted.items()
        if name != "self" and each.default is each.empty and name not in components
    ]  # fmt: skip
    if missing:
        raise KernwrightError(
            f"{table.pipeline} needs {', '.join(missing)}", "add them to the preset's [diffusers.components]"
        )
    own = {name: each for name, each in components.items() if name in wanted}
    upsampler = None
    if table.refinement is not None:
        between = find_class(table.refinement.upsampler)
        taken = set(inspect.signature(between.__init__).parameters)
        upsampler = between(**{name: each for name, each in components.items() if name in taken})
    return PresetPipeline(
        table=table,
        pipeline=kind(**own, **table.options),
        device=source.device,
        upsampler=upsampler,
        origins=origins,
    )


def random_image(request: GenerationRequest) -> Any:
    """Return the input image: noise of the request's size."""
    import numpy as np
    from PIL import Image

    pixels = np.random.default_rng(request.seed).integers(0, 256, (request.height, request.width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)
