"""kernwright wiki: text and JSON of every command, and its exit status."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from kernwright.cli.main import app
from kernwright.core.errors import KernwrightError


def run(*words: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, ["wiki", *words], catch_exceptions=False)
    assert result.exit_code == status, result.output
    return result.stdout


def test_search_names_pages_and_their_sections() -> None:
    text = run("search", "evict_first")
    assert text.startswith("cache-hints:")
    found = json.loads(run("search", "evict_first", "--json", "--limit", "1"))["pages"]
    assert [each["name"] for each in found] == ["cache-hints"]
    assert found[0]["bottleneck"][0] == "L2" and found[0]["score"] > 0
    run("search", "zzzz", status=1)


def test_for_gives_reasons() -> None:
    assert "fits: bottleneck issue" in run("for", "--bottleneck", "issue-bound", "--arch", "sm_90", "--op", "norm")
    found = json.loads(run("for", "--bottleneck", "shared-memory", "--json"))["pages"]
    assert found[0]["name"] == "shared-memory" and found[0]["reasons"]
    assert run("for", "--language", "triton").startswith("triton-")
    assert "fits: any situation" in run("for", "--op", "unknown"), "pages for any op"
    with pytest.raises(KernwrightError, match="use cuda, triton"):
        run("for", "--language", "rust")
    for arch in ("A100", "H200", "hopper", "sm_"):
        with pytest.raises(KernwrightError, match="is not an architecture"):
            run("for", "--arch", arch)
    assert run("for", "--arch", "9.0") == run("for", "--arch", "sm_90a") == run("for", "--arch", "sm90")
    with pytest.raises(KernwrightError, match="bottleneck"):
        run("for", "--bottleneck", "sped")
    with pytest.raises(KernwrightError, match="situation"):
        run("for")


def test_show_and_list() -> None:
    assert "griddepcontrol" in run("show", "dependent-launch")
    assert json.loads(run("show", "dependent-launch", "--json"))["text"]
    assert "dependent-launch" in run("list")
    assert len(json.loads(run("list", "--json"))["pages"]) > 25
    with pytest.raises(KernwrightError, match="did you mean dependent-launch"):
        run("show", "dependant-launch")


def test_check_counts_claims() -> None:
    found = json.loads(run("check", "--json"))
    assert found["problems"] == [] and found["claims"] > 50
