"""Options for times, for example how long a command waits: invalid ones are refused before any work."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from kernwright.cli.main import app
from kernwright.core.errors import KernwrightError


@pytest.mark.parametrize(
    "words", [["sweep"], ["tune"], ["judge", "add_norm"], ["sanitize", "add_norm"], ["baseline", "verify"]]
)
@pytest.mark.parametrize("seconds", ["-1", "nan", "inf"])
def test_a_wait_that_would_never_end_or_cannot_be_is_refused(words: list[str], seconds: str) -> None:
    refused = CliRunner().invoke(app, [*words, "--wait", seconds])
    assert isinstance(refused.exception, KernwrightError)
    assert "--wait" in refused.exception.cause and seconds in refused.exception.cause


@pytest.mark.parametrize("command", ["sweep", "tune"])
@pytest.mark.parametrize("minutes", ["-1", "nan"])
def test_invalid_minutes_are_refused(command: str, minutes: str) -> None:
    refused = CliRunner().invoke(app, [command, "--minutes", minutes])
    assert isinstance(refused.exception, KernwrightError)
    assert "--minutes" in refused.exception.cause and minutes in refused.exception.cause
