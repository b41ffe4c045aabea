"""UpstreamWork for an op: known fast paths that overlap with it, and the pull requests behind them."""

from __future__ import annotations

from collections.abc import Iterator

from kernwright.diagnose.catalogue.catalogue import shipped_catalogue
from kernwright.diagnose.catalogue.fast_path import FastPath

OWN = "kernwright"


def overlapping_paths(op: str) -> list[FastPath]:
    """Return the fast paths of other projects that replace the same chain of operators as an op that ships."""
    catalogue = shipped_catalogue()
    own = next((path for path in catalogue.paths if path.name == f"{OWN}.{op}"), None)
    if own is None:
        return []
    chains = {*own.chains, *([own.name] if own.spellings else [])}
    shared = [path for path in catalogue.paths if path.provider != OWN and _overlaps(path, own, chains)]
    return sorted(shared, key=lambda path: (not path.open_work, path.name))


def _overlaps(path: FastPath, own: FastPath, chains: set[str]) -> bool:
    return bool(chains & set(path.chains)) or bool(set(own.spellings) & set(path.spellings))


def upstream_lines(op: str) -> Iterator[str]:
    """Yield one line of text for each overlapping fast path, and one for each pull request behind it."""
    for path in overlapping_paths(op):
        yield f"- {path.name} ({path.state}): {path.about}. Source: {path.source}."
        for work in path.work:
            yield f"  - {work}, {work.state}" + (f": {work.about}" if work.about else "")
