"""Figures: the measurements of a benchmark, with the machine on which they were made, and the page that shows them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from rich.table import Table

from kernwright.cli.console import out
from kernwright.judge.record.provenance import library_versions


def note(folder: Path, part: str, figures: dict[str, Any], hardware: dict[str, Any]) -> None:
    """Keep the figures of one part and print them."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "figures.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    where = {"date": time.strftime("%Y-%m-%d"), "hardware": hardware, "libraries": library_versions()}
    path.write_text(json.dumps(known | {part: {"figures": figures} | where}, indent=1) + "\n")
    table = Table(title=part)
    table.add_column("figure")
    table.add_column("value", justify="right")
    for name, value in figures.items():
        table.add_row(name, _shown(value))
    out.print(table)


PARTS = {
    "startup": "The time of a command that only prints help.",
    "rows": "The time of one whole command, which judges a baseline against itself.",
    "injected differences": "Candidates with a known difference from their baseline, which the judge should report.",
    "A/A": "A baseline judged against itself. `faster` and `slower` are wrong here.",
    "kill -9": "The judge is killed during runs. No record that was written may be lost.",
    "clock": "The judge's clock, without the overhead of a block, compared with CUDA events inside the block.",
    "spread": "The differences between blocks of the same side.",
    "alone": "The parts of the time of a single call, and their noise.",
    "row": "The time that one row adds to a judgement.",
    "faults": "Candidates that crash the device, hang or use up its memory, and honest candidates after them.",
    "traces": "Hotspots of a large trace. HolisticTraceAnalysis makes its kernel table and its breakdown of idle time.",
}  # one sentence for each part of the page


def page(folder: Path, target: Path, title: str, script: str, commands: dict[str, str]) -> None:
    """Write the recorded figures as a page, and the record itself next to it. No number is typed by hand."""
    record = json.loads((folder / "figures.json").read_text())
    lines = [f"# {title}", "", f"Generated from `{target.with_suffix('.json').name}` by `python {script} page`."]
    for part, entry in record.items():
        lines += [
            "",
            f"## {part}",
            "",
            PARTS[part],
            "",
            f"`python {script} {commands[part]}`, {entry['date']}: {_machine(entry['hardware'])}, "
            f"Python {entry['libraries']['python']}, torch {entry['libraries']['torch']}.",
            "",
            "| figure | value |",
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
