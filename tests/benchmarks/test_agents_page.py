"""docs/agents.md: the tables are those of the server's own list, and every skill and agent is named."""

from __future__ import annotations

from agents_page import PAGE, tables, with_tables

from kernwright.skills.installed_skill import known_agents
from kernwright.skills.skill import shipped_skills


def test_the_tables_of_tools_are_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert tables().count("\n| `") > 15, "the server has tools and resources"
    assert with_tables(text) == text, "run: python benchmarks/agents_page.py"


def test_the_page_names_every_skill_and_every_folder() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [skill.name for skill in shipped_skills() if f"`{skill.name}`" not in text] == []
    assert [agent.name for agent in known_agents().values() if f"| `{agent.project}` |" not in text] == []
