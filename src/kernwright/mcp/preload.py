"""Preload: import and read what most calls need, while the first client still connects."""

from __future__ import annotations

import importlib
import threading
from contextlib import suppress

from kernwright.core.errors import KernwrightError
from kernwright.mcp.server import KernwrightServer
from kernwright.mcp.tools.wiki import WikiTools
from kernwright.tasks.catalog import list_tasks

MODULES = ("kernwright.tasks.admission_file", "kernwright.report.verdict_page", "kernwright.ledger.verify")


def preload(server: KernwrightServer) -> threading.Thread:
    """Start a thread that imports modules, loads tasks and wiki, and reads the default ledger, all without torch."""
    thread = threading.Thread(target=_load, args=(server,), name="kernwright-preload", daemon=True)
    thread.start()
    return thread


def _load(server: KernwrightServer) -> None:
    for module in MODULES:
        importlib.import_module(module)
    for task in list_tasks():
        with suppress(KernwrightError, OSError):  # a call that needs the task tells the error
            server.tasks.task_show(task, limit=1)
    with suppress(KernwrightError, OSError):
        WikiTools().wiki_search("kernel", limit=1)
    with suppress(KernwrightError, OSError):
        root = server.folders.ledger(None)
        if root.exists():
            server.scores.read(root)
