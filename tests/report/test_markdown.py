"""Foreign text on a generated page is shown as text: it makes no link, no HTML and no new line."""

from __future__ import annotations

import pytest
from markdown_it import MarkdownIt

from kernwright.report.markdown import escaped, table


@pytest.mark.parametrize("text", ["<img src=x onerror=a>", "[x](javascript:1)", r"\[x\](https://a.b)", "a\n# b", "`|`"])
def test_foreign_text_stays_text(text: str) -> None:
    page = "\n".join(table(["reason"], [[escaped(text)]]))
    tokens = MarkdownIt("commonmark").enable("table").parse(page)
    assert page.count("\n") == 2
    (cell,) = [tokens[at + 1] for at, token in enumerate(tokens) if token.type == "td_open"]
    assert {child.type for child in cell.children or []} <= {"text", "text_special"}
