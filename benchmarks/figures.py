"""Figures: what a benchmark measured, recorded with where it was measured, and the page that shows the record."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from rich.table import Table

from kernwright.cli.console import out
from kernwright.judge.record.provenance import library_versions


def note(folder: Path, part: str, figures: dict[str, Any], hardware: dict[str, Any]) -> None:
    """Keeps one part's figures and prints them."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "figures.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    where = {"date": time.strftime("%Y-%m-%d"), "hardware": hardware, "libraries": library_versions()}
    path.write_text(json.dumps(known | {part: {"figures": figures} | where}, indent=1) + "\n")
    table = Table(title=part)
    table.add_column("what")
    table.add_column("figure", justify="right")
    for name, value in figures.items():
        table.add_row(name, _shown(value))
    out.print(table)


def page(folder: Path, target: Path, title: str, script: str, commands: dict[str, str]) -> None:
    """Writes the recorded figures as a page, and the record itself beside it. No number is typed by hand."""
    record = json.loads((folder / "figures.json").read_text())
    lines = [f"# {title}", "", f"Generated from `{target.with_suffix('.json').name}` by `python {script} page`."]
    for part, entry in record.items():
        lines += [
            "",
            f"## {part}",
            "",
            f"`python {script} {commands[part]}`, {entry['date']}: {_machine(entry['hardware'])}, "
            f"Python {entry['libraries']['python']}, torch {entry['libraries']['torch']}.",
            "",
            "| what | figure |",
            "|---|---|",
        ]
        lines += [f"| {name} | {_shown(value)} |" for name, value in entry["figures"].items()]
    target.write_text("\n".join(lines) + "\n")
    target.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")


def _machine(hardware: dict[str, Any]) -> str:
    if hardware["kind"] == "cuda":
        return f"{hardware['model']}, driver {hardware['driver']}, {hardware['host_processors']} host processors"
    return f"{hardware['processors']} processors ({hardware['architecture']}, {hardware['model']})"


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
