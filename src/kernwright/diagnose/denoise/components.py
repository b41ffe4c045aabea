"""Components of a pipeline: constructed at published widths with random weights, or loaded from a local folder."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kernwright.core.errors import KernwrightError
from kernwright.diagnose.denoise.initialisation import materialise, seed_of, without_weights
from kernwright.diagnose.denoise.libraries import find_class
from kernwright.diagnose.denoise.stand_ins import StandInTokenizer, StandInVisionProcessor
from kernwright.diagnose.presets.preset import ComponentTable

STAND_INS = {"tokenizer": StandInTokenizer, "vision-processor": StandInVisionProcessor}
LOADERS = {"tokenizer": "transformers.AutoTokenizer", "vision-processor": "transformers.AutoProcessor"}
Origin = Literal["random", "loaded", "stand-in", "configuration"]


@dataclass(frozen=True, kw_only=True)
class ComponentSource:
    """The source of the components of one pipeline.

    Attributes:
        weights: a folder in the format of diffusers, with a folder for each component; None for random weights.
        prompt: the prompt that stand-ins of tokenizers recognize.
    """

    device: str
    seed: int
    prompt: str
    weights: Path | None = None

    def component(self, name: str, table: ComponentTable) -> tuple[Any, Origin]:
        """Return a component on its device, and its origin in words."""
        import torch

        folder = self.weights / name if self.weights is not None else None
        if folder is not None and folder.is_dir():
            return self._loaded(folder, table), "loaded"
        if table.class_name in STAND_INS:
            prompt = {"prompt": self.prompt}
            return _constructed(name, STAND_INS[table.class_name], table.config | prompt), "stand-in"
        kind = find_class(table.class_name)
        if not issubclass(kind, torch.nn.Module):
            return _constructed(name, kind, table.config), "configuration"
        with without_weights():
            model = _constructed(name, kind, table.config)
        materialise(model, self.device, torch.bfloat16, seed_of(name, self.seed))
        return model.eval().requires_grad_(False), "random"

    def _loaded(self, folder: Path, table: ComponentTable) -> Any:
        import torch

        kind = find_class(LOADERS.get(table.class_name, table.class_name))
        is_model = issubclass(kind, torch.nn.Module)
        options: dict[str, Any] = {"torch_dtype": torch.bfloat16} if is_model else {}
        options |= {key: table.config[key] for key in table.layers}
        try:
            found = kind.from_pretrained(str(folder), local_files_only=True, **options)
        except Exception as error:  # these libraries raise errors of many types
            raise KernwrightError(
                f"{folder} cannot be loaded as {table.class_name}: {error}",
                "name a folder in the format of diffusers: one folder for each component",
            ) from error
        return found.to(self.device).eval().requires_grad_(False) if is_model else found


def _constructed(name: str, kind: Any, config: Mapping[str, Any]) -> Any:
    """Return an object of a class. A class of transformers takes its configuration as an object."""
    wanted = getattr(kind, "config_class", None)
    try:
        return kind(wanted(**config)) if wanted is not None else kind(**config)
    except (TypeError, ValueError) as error:
        known = ", ".join(inspect.signature(wanted or kind).parameters)
        raise KernwrightError(
            f"component {name}: {kind.__name__} refuses its configuration: {error}", f"its arguments are: {known}"
        ) from error


def make_components(
    tables: Mapping[str, ComponentTable], source: ComponentSource
) -> tuple[dict[str, Any], dict[str, Origin]]:
    """Return all components by name, and the origin of each in words."""
    if source.weights is not None and not (source.weights / "transformer").is_dir():
        raise KernwrightError(
            f"--weights {source.weights} has no folder `transformer`",
            "name a folder in the format of diffusers: one folder for each component",
        )
    found, origins = {}, {}
    for name, table in tables.items():
        found[name], origins[name] = source.component(name, table)
    return found, origins
