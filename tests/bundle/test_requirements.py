"""The packages of a bundle: the lists of names are complete, and each has a version."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from kernwright.bundle.requirements import CORE, EXPECTED, TEST_TOOLS, TUNER, choose_pins, known_pins
from kernwright.packages.pin import Pin, canonical

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def closure(requirements: list[str]) -> set[str]:
    """Return all packages that the installed packages require on this platform, without extras."""
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
    assert closure(PROJECT["dependencies"] + PROJECT["optional-dependencies"]["judge"]) == set(CORE)


def test_the_test_tools_are_what_the_tests_need_beyond_the_core() -> None:
    assert closure(["pytest", "hypothesis"]) - set(CORE) == set(TEST_TOOLS)


def test_every_name_has_a_version_in_the_constraints() -> None:
    assert set(CORE) | set(TEST_TOOLS) | set(TUNER) | set(EXPECTED) <= set(known_pins())


def test_a_requested_version_replaces_ours_and_the_rest_is_added() -> None:
    core, tests, more = choose_pins(False, ["rich==14.0", "scipy==1.17.1"])
    assert [pin.version for pin in core if pin.name == "rich"] == ["14.0"]
    assert (len(core), tests, more) == (len(CORE), (), (Pin("scipy", "1.17.1"),))
    assert len(choose_pins(True, [])[1]) == len(TEST_TOOLS)


SEARCH = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1:]))
from kernwright.campaign.tuning.search import SampledSearch
from kernwright.campaign.tuning.space import Space
space = Space.model_validate({"parameters": {"A": {"range": [1, 9], "default": 3}}})
print(len(list(SampledSearch(space, [], 1).proposals())))
"""


def test_the_tuner_searches_with_what_a_bundle_carries() -> None:
    _, tests, more = choose_pins(True, ["scipy==1.17.1"], with_campaign=True)
    names = [pin.name for pin in more]
    assert set(names) == {*TUNER, "scipy"} - {pin.name for pin in tests} and len(names) == len(set(names))
    left_out = closure(["optuna"]) - set(TUNER) - set(CORE)
    assert {"sqlalchemy", "alembic"} <= left_out
    modules = [*left_out, "yaml"]  # PyYAML has another name as a module
    done = subprocess.run([sys.executable, "-c", SEARCH, *modules], capture_output=True, text=True)
    assert done.stdout.strip() == "9", done.stderr
