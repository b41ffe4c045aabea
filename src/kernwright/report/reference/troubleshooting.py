"""Troubleshooting: docs/troubleshooting.md, every error that the code can raise, with its cause and its remedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import kernwright
from kernwright.report.reference.error_sites import ErrorSite, error_sites

PAGE = "troubleshooting.md"
TITLE = """\
# Troubleshooting

Generated from the sources by `kernwright wiki check --update`.

An error of Kernwright names its cause and its remedy. The last line of its message names the section of this page that
has it, with the errors around it: `see: docs/troubleshooting.md#judge`. Names in braces stand for values: `{path}` is a
path. Search this page for the part of your message that holds no value. A message asks "did you mean" only if a known
name is close to yours.

Exit status 2 means that the command could not run. An *unexpected error* is a bug in Kernwright: run the same command
with `KERNWRIGHT_TRACE=1`, and report its output. Problems of the machine, such as the driver, permissions or the disk,
are found by `kernwright doctor`.
"""
OWN_ARGUMENT = "correct the argument: `help(kernwright.ops.NAME)` describes the arguments of an op"
# What a section is about, with the pages to read.
SECTIONS = {
    "admission": ("tasks from captures, and `task check`", ("own_op.md",)),
    "baselines": ("published packages as baselines", ("baselines.md",)),
    "bundle": ("machines without a network", ("gpu.md",)),
    "campaign": ("campaigns, agents, the tuner, promotion", ("campaign.md", "campaign_agents.md", "promotion.md")),
    "capture": ("recording the calls of a program", ("capture.md",)),
    "cli": ("options of commands", ("../README.md",)),
    "core": ("definitions of ops", ("own_op.md",)),
    "diagnose": ("doctor, traces, counters, runs of models", ("diagnose.md",)),
    "exploits": ("the collection of attacks", ("judge.md",)),
    "judge": ("judgements", ("judge.md", "candidates.md")),
    "ledger": ("records, archives, transfer", ("../evidence/README.md",)),
    "mcp": ("the MCP server", ("agents.md",)),
    "nn": ("modules", ("ops.md",)),
    "ops": ("arguments of ops", ("ops.md",)),
    "packages": ("wheels and downloads", ("baselines.md",)),
    "report": ("pages and plots", ("verdict.md",)),
    "runtime": ("calls of ops, builds, preferences", ("ops.md",)),
    "scaffold": ("new ops and new candidates", ("candidates.md",)),
    "service": ("`judge --serve`", ("judge.md",)),
    "skills": ("skills of coding agents", ("agents.md",)),
    "tasks": ("files of tasks and of candidates", ("own_op.md", "candidates.md")),
    "wiki": ("the wiki", ("wiki/README.md",)),
}


def troubleshooting_files(docs: Path) -> dict[Path, str]:
    """Return the text of the page, by its path."""
    found = error_sites(Path(kernwright.__file__).parent)
    return {docs / PAGE: "\n".join([TITLE, *_sections(found)])}


def _sections(sites: Sequence[ErrorSite]) -> Iterator[str]:
    for package, own in groupby(sites, key=lambda site: site.package):
        about, pages = SECTIONS[package]
        links = ", ".join(f"[{page.removeprefix('../')}]({page})" for page in pages)
        yield f"## {package}\n"
        yield f"Errors about {about}. Read: {links}.\n"
        yield "| cause | remedy |"
        yield "|---|---|"
        yield from (f"| {_cell(site.cause)} | {_cell(site.remedy or OWN_ARGUMENT)} |" for site in own)
        yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
