"""The resources: task cards, verdicts and their pages, as text behind URIs."""

from __future__ import annotations

from kernwright.judge.record.verdict import Verdict
from kernwright.mcp.folders import AllowedFolders
from kernwright.mcp.tools.tasks import TaskTools
from kernwright.mcp.tools.verdicts import VerdictTools

JSON = "application/json"
HTML = "text/html"
MARKDOWN = "text/markdown"
MOST_ROWS = 100
MOST_PAGES = 16  # pages that are kept


class Resources:
    """Reads resources. A verdict's resource is that of the default ledger, unless `ledger` names another one."""

    def __init__(self, folders: AllowedFolders, tasks: TaskTools, verdicts: VerdictTools) -> None:
        self._folders = folders
        self._tasks = tasks
        self._verdicts = verdicts
        self._pages: dict[str, tuple[Verdict, str]] = {}  # by run

    def task_card(self, task: str) -> str:
        """Return a task as Markdown: ops, tolerances and rows."""
        card = self._tasks.task_show(task, limit=MOST_ROWS)
        lines = [f"# {card.name}", "", f"{card.title}. {card.origin}", "", "## Ops", ""]
        for op in card.ops:
            lines += [f"- `{op.signature}`", f"  {op.about} Contract: {op.contract}."]
        lines += ["", "## Tolerances", ""]
        lines += [
            f"- {dtype}: atol {limits['atol']}, rtol {limits['rtol']}" for dtype, limits in card.tolerance.items()
        ]
        lines += ["", f"## Rows ({len(card.rows)} of {card.total})", "", "| row | op | set | sizes | MB |"]
        lines += ["|---|---|---|---|---:|"]
        for row in card.rows:
            sizes = " ".join(f"{axis}={size}" for axis, size in row.axes.items())
            lines.append(f"| {row.id} | {row.op} | {row.set} | {sizes} | {row.bytes_min / 1e6:.2f} |")
        decides = f"The metric {card.decides} decides. Admitted: {card.admitted}. Digest {card.digest}."
        return "\n".join([*lines, "", decides, ""])

    def verdict(self, run: str, ledger: str | None = None) -> str:
        """Return a whole verdict as JSON."""
        return self._verdicts.verdict(run, self._folders.ledger(ledger)).model_dump_json()

    def report(self, run: str, ledger: str | None = None) -> str:
        """Return the page of a verdict, with plots and provenance, as one HTML file."""
        from kernwright.report.verdict_page import render_page

        found = self._verdicts.verdict(run, self._folders.ledger(ledger))
        known = self._pages.get(found.run)
        if known is None or known[0] != found:
            if len(self._pages) >= MOST_PAGES:
                self._pages.clear()
            page = render_page([found], f"Kernwright: {found.candidate} on {found.task}")
            known = self._pages[found.run] = (found, page)
        return known[1]
