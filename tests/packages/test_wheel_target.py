"""The machine that a bundle is for."""

from __future__ import annotations

import sys

import pytest

from kernwright.core.errors import KernwrightError
from kernwright.packages.wheel_target import make_target


def test_a_machine_takes_wheels_for_every_older_glibc() -> None:
    platforms = make_target("3.12", []).platforms
    assert platforms[0] == "manylinux_2_28_x86_64"
    assert {"manylinux_2_24_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"} <= set(platforms)
    assert not {"manylinux_2_29_x86_64", "manylinux_2_16_x86_64"} & set(platforms)


def test_platforms_add_up_once_and_others_stay_as_they_are() -> None:
    target = make_target("3.11", ["manylinux_2_17_aarch64", "linux_aarch64", "manylinux_2_17_aarch64"])
    assert target.platforms == ("manylinux_2_17_aarch64", "manylinux2014_aarch64", "linux_aarch64")


def test_this_python_is_the_default() -> None:
    assert make_target(None, []).python == f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.mark.parametrize("python", ["3.10", "3.13", "312", "3.12.3", "py3"])
def test_a_python_that_kernwright_does_not_run_on_is_refused(python: str) -> None:
    with pytest.raises(KernwrightError, match=r"3\.11 and 3\.12"):
        make_target(python, [])


@pytest.mark.parametrize("platform", ["x86", "--dest", "Linux_x86_64", "manylinux 2"])
def test_an_invalid_platform_is_refused(platform: str) -> None:
    with pytest.raises(KernwrightError, match="wheel platform"):
        make_target("3.12", [platform])
