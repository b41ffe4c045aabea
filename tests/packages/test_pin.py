"""Pins are read from constraints and from the command line."""

from __future__ import annotations

import importlib.metadata

import pytest

from kernwright.core.errors import KernwrightError
from kernwright.packages.pin import Pin, read_constraints, resolve_pins


def test_constraints_are_read_with_their_hashes() -> None:
    first, second = "a" * 64, "b" * 64
    text = (
        f"# exact\nJinja2==3.1.6\npydantic_core==2.50.4 --hash=sha256:{first} \\\n    --hash=sha256:{second}\n"
        "colorama==0.4.6 ; platform_system == 'Windows'\nloose>=1\n\n"
    )
    pins = read_constraints(text)
    assert pins == {
        "jinja2": Pin("jinja2", "3.1.6"),
        "pydantic-core": Pin("pydantic-core", "2.50.4", (first, second)),
        "colorama": Pin("colorama", "0.4.6"),
    }


def test_a_version_is_the_given_one_else_the_known_one_else_the_installed_one() -> None:
    known = {"rich": Pin("rich", "9.9", ("c" * 64,))}
    assert resolve_pins(["Rich"], known) == [known["rich"]]
    assert resolve_pins(["rich==1.0"], known) == [Pin("rich", "1.0")], "a hash of another version must not stay"
    assert resolve_pins(["pytest"], known) == [Pin("pytest", importlib.metadata.version("pytest"))]
    with pytest.raises(KernwrightError, match="no version of no-such-thing is known"):
        resolve_pins(["no_such_thing"], known)


@pytest.mark.parametrize(
    "text", ["", "rich>=1", "rich==", "--index-url=x", "rich==1 evil", "../rich==1", "rich[all]==1"]
)
def test_an_invalid_pin_is_refused(text: str) -> None:
    with pytest.raises(KernwrightError, match="names no package"):
        resolve_pins([text], {})
