"""Which versions go into a bundle, and whether the list of names is whole."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

from kernwright.bundle.pin import (
    CORE,
    EXPECTED,
    TEST_TOOLS,
    Pin,
    canonical,
    choose_pins,
    known_pins,
    read_constraints,
    resolve_pins,
)
from kernwright.core.errors import KernwrightError

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def closure(requirements: list[str]) -> set[str]:
    """Everything that the installed packages say they need on this platform, extras aside."""
    found: set[str] = set()
    pending = [canonical(re.split(r"[^A-Za-z0-9._-]", text)[0]) for text in requirements]
    while pending:
        name = pending.pop()
        if name in found or name in EXPECTED:
            continue
        found.add(name)
        for need in importlib.metadata.requires(name) or ():
            condition = need.partition(";")[2]
            if not re.search(r"extra|python_version *<|platform_system|sys_platform|platform_python", condition):
                pending.append(canonical(re.split(r"[^A-Za-z0-9._-]", need)[0]))
    return found


def test_the_core_is_what_kernwright_needs_beyond_torch() -> None:
    assert closure(PROJECT["dependencies"] + ["nvidia-ml-py"]) == set(CORE)


def test_the_test_tools_are_what_the_tests_need_beyond_the_core() -> None:
    assert closure(["pytest", "hypothesis"]) - set(CORE) == set(TEST_TOOLS)


def test_every_name_has_a_version_in_the_constraints() -> None:
    assert set(CORE) | set(TEST_TOOLS) | set(EXPECTED) <= set(known_pins())


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
def test_what_is_no_pin_is_refused(text: str) -> None:
    with pytest.raises(KernwrightError, match="names no package"):
        resolve_pins([text], {})


def test_an_asked_for_version_replaces_ours_and_the_rest_comes_besides() -> None:
    core, tests, more = choose_pins(False, ["rich==14.0", "scipy==1.17.1"])
    assert [pin.version for pin in core if pin.name == "rich"] == ["14.0"]
    assert (len(core), tests, more) == (len(CORE), (), (Pin("scipy", "1.17.1"),))
    assert len(choose_pins(True, [])[1]) == len(TEST_TOOLS)
