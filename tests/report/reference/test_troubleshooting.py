"""The page of errors: what is read from the sources, and the section that a message names."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kernwright.cli.main import app, place_of
from kernwright.core.errors import KernwrightError
from kernwright.report.reference.error_sites import ErrorSite, error_sites
from kernwright.report.reference.troubleshooting import SECTIONS, troubleshooting_files

ROOT = Path(__file__).parents[3]
SOURCE = """
from kernwright.core.errors import BadFile, BadFiles, KernwrightError, did_you_mean

PLACE = "the table"


class Refused(KernwrightError):
    def __init__(self, name, why):
        super().__init__(f"{name} is refused: {why}", "ask again")


class Missing(BadFile):
    pass


def work(path, names, error, flag):
    told = f"{path.name} is gone"
    if flag:
        raise KernwrightError(told, f"write it to {PLACE}")
    raise Refused("x", "because")
    raise BadFile(path, "field", f"got {names[0]!r}", "write " "a name" if flag else "other")
    raise KernwrightError(f"no {', '.join(names)}", did_you_mean("x", names, "list them"))
    raise KernwrightError(error.cause, error.remedy)
    raise BadFiles([])
    raise ValueError("not ours")
    return Missing(path, "", "is missing", remedy="make it")
"""


def test_errors_are_read_with_the_names_of_their_values(tmp_path: Path) -> None:
    (tmp_path / "judge").mkdir()
    (tmp_path / "judge" / "module.py").write_text(SOURCE)
    shutil.copy(ROOT / "src" / "kernwright" / "core" / "errors.py", tmp_path)
    assert list(error_sites(tmp_path)) == [
        ErrorSite("judge", "no {names}", "did you mean {close names}? list them"),
        ErrorSite("judge", "{file}: got {names}", "write a name"),
        ErrorSite("judge", "{file}: is missing", "make it"),
        ErrorSite("judge", "{name} is gone", "write it to the table"),
        ErrorSite("judge", "{name} is refused: {why}", "ask again"),
    ]


def test_only_arguments_of_ops_have_no_remedy_of_their_own() -> None:
    without = [site for site in error_sites(ROOT / "src" / "kernwright") if not site.remedy]
    assert [site for site in without if not site.cause.startswith("{argument}: ")] == []


def test_a_message_names_the_section_of_the_package_that_raised_it(tmp_path: Path) -> None:
    ((_, page),) = troubleshooting_files(tmp_path).items()
    for section, words in {
        "scaffold": ("candidate", "new", "--op", "rotary", "--language", "cpp", str(tmp_path / "x")),
        "ledger": ("ledger", "verify", "--ledger", str(tmp_path / "none")),
    }.items():
        with pytest.raises(KernwrightError) as info:
            CliRunner().invoke(app, words, catch_exceptions=False)
        assert place_of(info.value) == f"docs/troubleshooting.md#{section}"
        assert f"\n## {section}\n" in page
    done = subprocess.run(
        [sys.executable, "-m", "kernwright", "wiki", "show", "none"], capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == "  see: docs/troubleshooting.md#wiki"
    assert set(SECTIONS) >= {line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")}
