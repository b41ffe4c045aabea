"""Write the folder of a task, completely or not at all."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from kernwright.admission.draft import Draft
from kernwright.core.errors import EnvironmentProblem, ExistsAlready
from kernwright.tasks.task import ROWS_FILE, TASK_FILE, TaskFile, load_task


def write_task(draft: Draft, folder: Path, definitions: Path | None, force: bool) -> None:
    """Write a task into a temporary folder, load it like any task, and only then move it to its place."""
    if folder.exists() and not force:
        raise ExistsAlready(f"{folder} exists already", "choose another name or --out, or write over it with --force")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise EnvironmentProblem(f"{folder} cannot be made: {error.strerror}", "choose another --out") from None
    try:
        beside.chmod(0o755)  # mkdtemp makes a folder that only its user can read
        (beside / TASK_FILE).write_text(task_toml(draft.file), encoding="utf-8")
        lines = [row.model_dump_json(exclude_none=True, exclude_defaults=False) for row in draft.rows]
        (beside / ROWS_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")
        if definitions is not None and draft.file.definitions is not None:
            shutil.copyfile(definitions, beside / draft.file.definitions)
        _ = load_task(beside).ops  # imports the definitions from the new folder
        if folder.exists():
            for file in [*beside.glob("*.py"), *beside.glob("*.jsonl"), *beside.glob("*.toml")]:
                file.replace(folder / file.name)  # other files of the folder stay
        else:
            beside.rename(folder)
    except OSError as error:
        raise EnvironmentProblem(f"{folder} cannot be written: {error}", "choose another --out") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def task_toml(file: TaskFile) -> str:
    """Return the text of task.toml as an author would write it."""

    def text(value: object) -> str:
        return json.dumps(value, ensure_ascii=False)  # strings and lists have the same syntax in TOML and JSON

    lines = [f"name = {text(file.name)}", f"title = {text(file.title)}", f"origin = {text(file.origin)}"]
    if file.definitions:
        lines.append(f"definitions = {text(file.definitions)}")
    lines += [f"neighbours = {text(list(file.neighbours))}", "", "[tolerance]"]
    lines += [f"{dtype} = {{ atol = {t.atol}, rtol = {t.rtol} }}" for dtype, t in file.tolerance.items()]
    return "\n".join(lines) + "\n"
