"""Skills: their format, their commands, and the copies in the folders of agents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from parsed_commands import CommandError, commands_in, parse_command
from typer.testing import CliRunner

from kernwright.cli.main import app
from kernwright.core.errors import BadFile, KernwrightError
from kernwright.skills.installed_skill import installed_in, known_agents, stamped
from kernwright.skills.skill import Skill, find_skill, shipped_skills

SKILLS = shipped_skills()
PLAIN = "---\nname: a\ndescription: Do a. Use for a.\n---\n\n# A\n"
COMMANDS = sorted({(skill.name, line) for skill in SKILLS for line in commands_in(skill.text)})


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["skills", *words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def states(folder: Path) -> dict[str, str]:
    return {copy.skill.name: copy.state for copy in installed_in(folder)}


@pytest.mark.parametrize("skill", SKILLS, ids=lambda skill: skill.name)
def test_a_skill_has_the_format_of_agents_and_is_short(skill: Skill) -> None:
    assert skill.name == skill.folder_name and "Use " in skill.description, "an agent chooses by the description"
    assert 40 <= len(skill.text.splitlines()) <= 90 and max(map(len, skill.text.splitlines()[4:])) <= 150
    assert commands_in(skill.text), "a skill works with the commands of the tool"


def test_every_command_of_a_skill_exists_with_its_options() -> None:
    assert len(COMMANDS) > 50, "the search finds them"
    wrong = {}
    for name, line in COMMANDS:
        try:
            parse_command(line)
        except CommandError as error:
            wrong[line] = f"{name}: {error}"
    assert wrong == {}
    for line in ("kernwright juge x", "kernwright judge x --candidat y", "kernwright ledger shw", "kernwright op new"):
        with pytest.raises(CommandError):
            parse_command(line)


@pytest.mark.parametrize(
    "text",
    [
        "# A\n",
        PLAIN.replace("name: a", "name: b"),
        PLAIN.replace("name: a\n", ""),
        PLAIN.replace("Do a.", "Do: a."),
        PLAIN.replace("description: Do", "description: [Do"),
        PLAIN.replace("---\n\n", "extra: x\n---\n\n"),
        PLAIN.replace("Do a.", "Do " + "a" * 1100),
    ],
)
def test_a_front_matter_that_an_agent_may_misread_is_refused(text: str) -> None:
    assert Skill("a", PLAIN).name == "a"
    with pytest.raises(BadFile):
        assert Skill("a", text).fields


def test_copies_name_their_version_and_are_replaced_unless_they_were_edited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / known_agents()["codex"].project
    status, said = run("install", "--agent", "codex")
    assert status == 0 and said.count(": installed") == len(SKILLS)
    assert set(states(folder).values()) == {"current"}
    first, second, third, *_ = (skill.name for skill in SKILLS)
    copy = folder / first / "SKILL.md"
    assert "kernwright-version: " in copy.read_text() and Skill("x", copy.read_text()).text.startswith("---\nname: ")

    older = Skill(second, find_skill(second).text + "\nAn earlier line.\n")
    (folder / second / "SKILL.md").write_text(
        stamped(older).replace("kernwright-version: ", "kernwright-version: 0.0.")
    )
    copy.write_text(copy.read_text() + "\nMy own rule.\n")
    (folder / third / "SKILL.md").write_text(PLAIN)
    assert [states(folder)[name] for name in (first, second, third)] == ["edited", "old", "foreign"]
    status, said = run("list")
    assert status == 1 and said.count("SKILL.md: ") == len(SKILLS) and "SKILL.md: old (from version 0.0." in said

    status, said = run("install", "--agent", "codex")
    assert status == 1 and [states(folder)[name] for name in (first, second, third)] == ["edited", "current", "foreign"]
    assert "My own rule." in copy.read_text() and (folder / third / "SKILL.md").read_text() == PLAIN
    assert run("install", "--agent", "codex", "--force")[0] == 0 and set(states(folder).values()) == {"current"}
    status, said = run("list", "--json", "--dir", str(folder))
    assert status == 0 and {each["state"] for each in json.loads(said)["copies"]} == {"current"}


def test_skills_are_installed_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    run("install", "--user")
    run("install", "--dir", str(tmp_path / "own"))
    for folder in (tmp_path / ".claude" / "skills", tmp_path / "own"):
        assert set(states(folder).values()) == {"current"}
    for words in (["--agent", "nobody"], ["--user", "--dir", "x"]):
        assert isinstance(CliRunner().invoke(app, ["skills", "install", *words]).exception, KernwrightError)
    (tmp_path / "file").touch()
    refused = CliRunner().invoke(app, ["skills", "install", "--dir", str(tmp_path / "file")]).exception
    assert isinstance(refused, KernwrightError) and "cannot be written" in refused.cause
    assert run("show", "use-ops")[1].strip() == find_skill("kernwright-use-ops").text.strip()
    with pytest.raises(KernwrightError, match="use-op"):
        find_skill("use-op")
