"""kernwright skills: list, show and install instructions for coding agents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernwright.cli.output import say

if TYPE_CHECKING:
    from kernwright.skills.installed_skill import InstalledSkill

app = typer.Typer(no_args_is_help=True, help="List, show and install skills: instructions that a coding agent loads.")

Folder = Annotated[
    Path | None, typer.Option("--dir", metavar="DIR", help="folder of skills; default: that of the agent")
]


def complete_skills(incomplete: str) -> list[str]:
    """Return the names of the skills."""
    from kernwright.skills.skill import shipped_skills

    return [skill.name for skill in shipped_skills() if skill.name.startswith(incomplete)]


@app.command("list")
def list_skills(
    directory: Folder = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """List the skills, and the copies in the folders of agents: current, old, edited, or foreign.

    Exit status: 1 if a copy is old, else 0.
    """
    import json

    from kernwright.core.version import __version__
    from kernwright.skills.installed_skill import copies_near, installed_in
    from kernwright.skills.skill import shipped_skills

    skills = shipped_skills()
    if directory is not None:
        copies = [copy for copy in installed_in(directory) if copy.state != "missing"]
    else:
        copies = [copy for _, copy in copies_near(Path.cwd())]
    if as_json:
        described = [
            {"name": copy.skill.name, "path": str(copy.path), "state": copy.state, "version": copy.version}
            for copy in copies
        ]
        shipped = [{"name": each.name, "description": each.description, "digest": each.digest} for each in skills]
        say(json.dumps({"version": __version__, "skills": shipped, "copies": described}, indent=1))
    else:
        for skill in skills:
            say(skill.name)
            say(f"    {skill.description}")
        for copy in copies:
            say(f"{copy.path}: {_state(copy)}")
        if not copies:
            say("no copies are installed; install them: kernwright skills install")
    raise typer.Exit(1 if any(copy.state == "old" for copy in copies) else 0)


@app.command()
def show(
    name: Annotated[
        str, typer.Argument(help="name of a skill, with or without kernwright-", autocompletion=complete_skills)
    ],
) -> None:
    """Print a skill."""
    from kernwright.skills.skill import find_skill

    say(find_skill(name).text.rstrip())


@app.command()
def install(
    agent: Annotated[str, typer.Option(metavar="NAME", help="claude or codex")] = "claude",
    directory: Folder = None,
    user: Annotated[
        bool, typer.Option("--user", help="install into the agent's folder in your home, for all projects")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="also replace copies that were edited")] = False,
) -> None:
    """Copy the skills into the folder where an agent looks for them: of this project, or of the user.

    A copy that was edited is not replaced.

    Exit status: 1 if a copy was not replaced, else 0.
    """
    from kernwright.core.errors import KernwrightError
    from kernwright.skills.installed_skill import find_agent_folders, installed_in

    if user and directory is not None:
        raise KernwrightError("--user and --dir exclude each other", "choose one of them")
    folders = find_agent_folders(agent)
    folder = directory if directory is not None else folders.user if user else Path.cwd() / folders.project
    kept = []
    for copy in installed_in(folder):
        if not copy.install(force):
            kept.append(copy)
            say(f"{copy.path}: not replaced: {_state(copy)}; replace it with --force", err=True)
            continue
        done = {"missing": "installed", "current": "unchanged"}.get(copy.state, "replaced")
        say(f"{copy.path}: {done}")
    raise typer.Exit(1 if kept else 0)


def _state(copy: InstalledSkill) -> str:
    """Return the state of a copy, in words."""
    version = f" (from version {copy.version})" if copy.version else ""
    return {
        "current": f"current{version}",
        "old": f"old{version}: update it: kernwright skills install --dir {copy.folder}",
        "edited": f"edited{version}",
        "foreign": "no copy of this skill, but another skill of the same name",
    }.get(copy.state, copy.state)
