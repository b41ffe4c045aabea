"""README and pages: links resolve, snippets run, commands parse, and every field of a verdict is described."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from made_results import metric
from parsed_commands import code_blocks, commands_in, parse_command
from pydantic import BaseModel

from kernwright.advice.advice import Advice, FailedRow, RowDistance
from kernwright.advice.failing_case import FailingCase
from kernwright.advice.next_step import NextStep
from kernwright.judge import request as request_module
from kernwright.judge.record import verdict as verdict_module
from kernwright.judge.record.verdict import RowVerdict, Verdict
from kernwright.report.verdict_table import verdict_table
from kernwright.service.messages import ServedBy
from kernwright.tasks.catalog import find_task

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
COMMAND_PAGES = ("README.md", "docs/verdict.md", "docs/agents.md")
MODELS = [
    model
    for model in vars(verdict_module).values()
    if isinstance(model, type) and issubclass(model, BaseModel) and model.__module__ == verdict_module.__name__
] + [Advice, FailedRow, FailingCase, RowDistance, NextStep, ServedBy]


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    broken = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert broken == []


def test_the_readmes_model_runs() -> None:
    (snippet,) = code_blocks(text_of("README.md"), "python")
    namespace: dict[str, Any] = {}
    exec(compile(snippet, "README.md", "exec"), namespace)
    block, x = namespace["block"], namespace["x"]
    shift, scale, gate = torch.randn(3, 1, 1, x.shape[-1])
    normed = torch.nn.functional.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift
    with torch.no_grad():
        torch.testing.assert_close(block(x, shift, scale, gate), x + block.mlp(normed) * gate)


@pytest.mark.parametrize("line", [line for page in COMMAND_PAGES for line in commands_in(text_of(page))])
def test_the_pages_commands_are_known(line: str) -> None:
    assert parse_command(line)


def test_the_page_of_the_verdict_names_every_field() -> None:
    text = (ROOT / "docs" / "verdict.md").read_text()
    assert len(MODELS) >= 6
    for model in MODELS:
        about = text[text.index(f"\n`{model.__name__}` ") :].partition("\n\n`")[0]
        missing = [name for name in model.model_fields if f"`{name}`" not in about]
        assert missing == [], model.__name__
    fields = {field.name for field in dataclasses.fields(request_module.JudgeRequest)}
    rows = set(re.findall(r"^\| `(\w+)` \|", text[text.index("`JudgeRequest` has") :], re.MULTILINE))
    assert rows == fields


def test_the_pages_judgement_is_a_request_that_the_judge_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def judge(request: request_module.JudgeRequest) -> Verdict:
        asked.append(request)
        return Verdict.model_construct(verdict="faster", headline={"stream": None}, rows=())

    (snippet,) = code_blocks(text_of("docs/verdict.md"), "python")
    monkeypatch.setattr(request_module, "judge", judge)
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet, "docs/verdict.md", "exec"), {})
    assert len(asked) == 1 and (ROOT / asked[0].candidate).is_dir() and (tmp_path / "verdict.json").is_file()


def test_the_readmes_output_has_the_columns_and_rows_of_today() -> None:
    (output,) = (code for code in code_blocks(text_of("README.md")) if "against eager on" in code)
    head = next(line for line in output.splitlines() if line.startswith("┃"))
    ids = re.findall(r"^│ (\S+)", output, re.MULTILINE)
    rows = tuple(
        RowVerdict(id=name, op="norm_scale_shift", verdict="faster", bytes_min=1, metrics={"stream": metric(2.0, 3.0)})
        for name in ids
    )
    verdict = Verdict.model_construct(
        task="norm_scale_shift", baseline="eager", candidate="fused_cpp", metric="stream", rows=rows, reasons=()
    )
    table = verdict_table(verdict)
    assert table is not None
    assert [cell.strip() for cell in head.strip("┃").split("┃")] == [column.header for column in table.columns]
    assert set(ids) <= {row.id for row in find_task("norm_scale_shift").rows}
