"""Classes of diffusers and transformers, by their names. Neither library is imported before it is needed."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import Any

from kernwright.core.errors import EnvironmentProblem, KernwrightError, did_you_mean

EXTRA = "install them: python -m pip install 'kernwright[diffusers]'"
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


@cache
def load_libraries() -> None:
    """Import diffusers and transformers. They read no network and print no hints."""
    os.environ.update(dict.fromkeys(OFFLINE, "1"))  # read when huggingface_hub is imported
    try:
        import diffusers
        import transformers
    except ImportError as error:
        raise EnvironmentProblem(f"the denoise benchmark needs diffusers and transformers: {error}", EXTRA) from None
    diffusers.utils.logging.set_verbosity_error()
    transformers.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]


def find_class(dotted: str) -> Any:
    """Return the class with a dotted name, such as `diffusers.AutoencoderKL`."""
    load_libraries()
    place, _, name = dotted.rpartition(".")
    try:
        module = import_module(place or "diffusers")
    except ImportError as error:
        raise KernwrightError(f"{dotted} cannot be imported: {error}", "correct the class in the preset") from None
    found = getattr(module, name, None)
    if not isinstance(found, type):
        raise KernwrightError(
            f"{module.__name__} has no class {name}",
            did_you_mean(name, dir(module), "use a version that has it, or correct the class in the preset"),
        )
    return found
