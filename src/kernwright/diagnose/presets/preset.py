"""Preset: one model with its resolution, frames, steps and guidance, and its settings for sglang and diffusers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

Guidance = Literal["embedded", "classifier-free", "none"]
Stated = Literal["negative_prompt", "width", "height", "frames", "fps", "steps", "guidance", "guidance_2"]
DottedName = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$|^tokenizer$|^vision-processor$")]

# The options of `sglang generate` by the fields of a request.
OPTIONS: dict[Stated, str] = {
    "negative_prompt": "--negative-prompt",
    "width": "--width",
    "height": "--height",
    "frames": "--num-frames",
    "fps": "--fps",
    "steps": "--num-inference-steps",
    "guidance": "--guidance-scale",
    "guidance_2": "--guidance-scale-2",
}


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class GenerationRequest(_Table):
    """The image or video to generate."""

    prompt: str
    negative_prompt: str | None = None
    image: str | None = Field(default=None, description="file name of the input image, for models that take one")
    width: int = Field(gt=0)
    height: int = Field(gt=0)
    frames: int = Field(default=1, gt=0)
    fps: int | None = Field(default=None, gt=0)
    steps: int = Field(gt=0)
    guidance: float = Field(ge=0, description="scale of the guidance")
    guidance_2: float | None = Field(default=None, ge=0, description="scale of the guidance of a second expert")
    seed: int = Field(default=42, ge=0)


class SglangTable(_Table):
    """The settings of the preset for `sglang generate`."""

    model_path: str | None = Field(default=None, description="hub id or folder, if it is not the preset's model")
    gpus: int = Field(default=1, gt=0)
    gated: bool = Field(default=False, description="whether the model's download needs HF_TOKEN")
    nightly: str | None = Field(default=None, description="id of upstream's nightly benchmark with the same settings")
    states: list[Stated] = Field(
        default_factory=list, description="fields of the request that the command states; sglang has the others itself"
    )
    flags: list[Annotated[str, Field(pattern="^--")]] = Field(
        default_factory=list, description="further flags, as --name or --name=value"
    )
    env: dict[str, str] = Field(default_factory=dict, description="variables of the environment")


class ComponentTable(_Table):
    """One component of a diffusers pipeline: a class, and its configuration at published widths."""

    class_name: DottedName = Field(
        alias="class",
        description="class with its module, as in diffusers.AutoencoderKL; `tokenizer` and `vision-processor` "
        "stand in for the files of a tokenizer",
    )
    config: dict[str, Any] = Field(default_factory=dict)
    layers: list[str] = Field(default_factory=list, description="keys of the configuration that --layers sets")

    @model_validator(mode="after")
    def _layers_exist(self) -> ComponentTable:
        if missing := [key for key in self.layers if key not in self.config]:
            raise ValueError(f"layers names {', '.join(missing)}, which config does not have")
        return self


class RefinementTable(_Table):
    """The second stage of a two-stage model: the latents are upsampled and denoised again at the full size."""

    upsampler: DottedName = Field(description="pipeline class that upsamples the latents")
    scale: int = Field(default=2, gt=1, description="the first stage has width and height divided by it")
    sigmas: list[float] = Field(min_length=1, description="noise levels of its steps")
    guidance: float = Field(default=1.0, ge=0)
    call: dict[str, Any] = Field(default_factory=dict, description="arguments of the pipeline, over the first stage's")


class DiffusersTable(_Table):
    """The settings of the preset for diffusers."""

    pipeline: str = Field(pattern=r"^[A-Za-z_]\w*$", description="pipeline class of diffusers")
    guidance: Guidance = Field(description="embedded (an input), classifier-free (two or more passes) or none")
    guidance_argument: str = Field(default="guidance_scale", description="argument of the pipeline for the scale")
    options: dict[str, Any] = Field(default_factory=dict, description="further arguments of the pipeline's constructor")
    call: dict[str, Any] = Field(default_factory=dict, description="further arguments of the pipeline's call")
    components: dict[str, ComponentTable]
    refinement: RefinementTable | None = None

    @model_validator(mode="after")
    def _has_a_transformer(self) -> DiffusersTable:
        if "transformer" not in self.components:
            raise ValueError("components has no transformer")
        return self


class Preset(_Table):
    """A preset file. Tables of [tiny] are merged over the others for a version that a CPU runs in seconds."""

    title: str
    model: str = Field(description="hub id of the model")
    request: GenerationRequest
    sglang: SglangTable | None = None
    diffusers: DiffusersTable | None = None
    tiny: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _tiny_is_valid(self) -> Preset:
        if not self.tiny:
            return self
        try:
            self.shrunk()
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(f"with [tiny], {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        return self

    def shrunk(self) -> Preset:
        """Return the tiny version: the structure of the model at small widths and sizes."""
        whole = self.model_dump(by_alias=True, exclude={"tiny"}, exclude_none=True)
        return Preset.model_validate(merged(whole, self.tiny))

    @property
    def sglang_model(self) -> str:
        """The model path of `sglang generate`."""
        return (self.sglang.model_path if self.sglang else None) or self.model

    def sglang_arguments(self) -> list[str]:
        """Return the arguments of `sglang generate` that belong to the preset, without model, prompt and seed."""
        if self.sglang is None:
            return []
        stated = [(OPTIONS[name], getattr(self.request, name)) for name in self.sglang.states]
        return [f"{option}={value}" for option, value in stated if value is not None] + self.sglang.flags


def merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return a mapping with the values of `over` in place of those of `under`. Mappings inside are merged too."""
    result = dict(under)
    for key, value in over.items():
        below = result.get(key)
        result[key] = merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result
