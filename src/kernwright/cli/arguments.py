"""Arguments that several commands take, with their shell completion. Completion imports neither torch nor pydantic."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SETS = ("production", "smoke", "grid", "all")
BUILT_IN = ("eager", "compile")


def complete_tasks(incomplete: str) -> list[str]:
    """Return the names of tasks that begin with the incomplete word."""
    from kernwright.tasks.catalog import list_tasks

    return [name for name in list_tasks() if name.startswith(incomplete)]


def complete_rows(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return sets, and the row ids of the tasks on the command line. Words before the last comma stay."""
    from kernwright.tasks.catalog import list_tasks
    from kernwright.tasks.summary import row_ids

    known = list_tasks()
    ids = [row for task in _tasks_named(ctx) for row in row_ids(known.get(task, Path(task)))]
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{word}" for word in dict.fromkeys((*SETS, *ids)) if word.startswith(last)]


def complete_ops(incomplete: str) -> list[str]:
    """Return the names of ops that ship and begin with the incomplete word."""
    from kernwright.ops import FAMILIES

    return [name for name in sorted(FAMILIES) if name.startswith(incomplete)]


def complete_baselines(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return baselines by name: built in, published, and the adapters of the task on the command line."""
    adapters = [name for task in _tasks_named(ctx) for name in _adapters(task)]
    return [name for name in (*BUILT_IN, *adapters, *complete_published(incomplete)) if name.startswith(incomplete)]


def complete_contenders(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the baselines, and the name of the ops that ship."""
    return [name for name in ("kernwright", *complete_baselines(ctx, incomplete)) if name.startswith(incomplete)]


def complete_published(incomplete: str) -> list[str]:
    """Return the published baselines of the lock file."""
    import tomllib

    import kernwright

    lock = Path(str(kernwright.__file__)).parent / "baselines" / "lock.toml"
    found = tomllib.loads(lock.read_text(encoding="utf-8"))["baseline"]
    return [each["name"] for each in found if each["name"].startswith(incomplete)]


def complete_presets(incomplete: str) -> list[str]:
    """Return the names of the presets of models."""
    from kernwright.diagnose.presets.catalog import list_presets

    return [name for name in list_presets() if name.startswith(incomplete)]


def complete_runs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the run ids of the ledger on the command line, newest first."""
    import os

    folder = ctx.params.get("ledger") or os.environ.get("KERNWRIGHT_LEDGER") or Path(".kernwright", "ledger")
    runs = sorted((path.stem for path in Path(folder, "runs").glob("*.jsonl")), reverse=True)
    return [run for run in runs if run.startswith(incomplete)]


def _tasks_named(ctx: typer.Context) -> list[str]:
    """Return the tasks on the command line. While an option lacks its value, the arguments are not parsed yet."""
    named = ctx.params.get("task") or ctx.params.get("tasks") or [word for word in ctx.args if word[:1] != "-"]
    return [named] if isinstance(named, str) else list(named)


def _adapters(task: str) -> list[str]:
    """Return the public functions of a task's baselines.py."""
    import ast

    from kernwright.tasks.catalog import list_tasks

    path = list_tasks().get(task, Path(task)) / "baselines.py"
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return []
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]


TaskName = Annotated[str, typer.Argument(help="name or folder of a task", autocompletion=complete_tasks)]
