"""The Jinja environment of the HTML pages. Everything that a page shows is escaped, because it may be foreign text."""

from __future__ import annotations

import math

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kernwright.core.plain_text import plain

NOT_FINITE = "not finite"


def page_environment() -> Environment:
    """Return a new environment, to which a page adds its own filters."""
    return Environment(
        loader=PackageLoader("kernwright.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _shown(value: object) -> object:
    """Return a value as the page shows it, before it is escaped."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else NOT_FINITE
    return plain(value, newlines=True)
