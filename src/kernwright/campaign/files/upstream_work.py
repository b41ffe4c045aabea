"""UpstreamWork for an op: known fast paths that overlap with it, and the pull requests behind them."""

from __future__ import annotations

from collections.abc import Iterator

from kernwright.baselines.lock import read_lock
from kernwright.baselines.published import PublishedBaseline
from kernwright.diagnose.catalogue.catalogue import shipped_catalogue
from kernwright.diagnose.catalogue.fast_path import FastPath

OWN = "kernwright"


def overlapping_paths(op: str) -> list[FastPath]:
    """Return the fast paths of other projects that do the work of an op that ships.

    They replace the same chain of operators, or a published baseline of the op runs their kernel.
    """
    catalogue = shipped_catalogue()
    own = next((path for path in catalogue.paths if path.name == f"{OWN}.{op}"), None)
    if own is None:
        return []
    functions = published_functions(op)
    shared = [path for path in catalogue.paths if path.provider != OWN and _overlaps(path, own, functions)]
    return sorted(shared, key=lambda path: (not path.open_work, path.name))


def published_functions(op: str) -> set[str]:
    """Return the names of the functions that the published baselines call for an op."""
    found = (PublishedBaseline.find(name).adapter(op) for name in read_lock().names())
    return {function.partition(":")[2] for adapter in found if adapter is not None for function in adapter.functions}


def _overlaps(path: FastPath, own: FastPath, functions: set[str]) -> bool:
    same_chain = set(own.chains) & set(path.chains) or set(own.spellings) & set(path.spellings)
    same_work = path.category == own.category and any(path.runs(function) for function in functions)
    return bool(same_chain) or same_work


def upstream_lines(op: str) -> Iterator[str]:
    """Yield one line of text for each overlapping fast path, and one for each pull request behind it."""
    for path in overlapping_paths(op):
        yield f"- {path.name} ({path.state}): {path.about}. Source: {path.source}."
        for work in path.work:
            yield f"  - {work}, {work.state}" + (f": {work.about}" if work.about else "")
