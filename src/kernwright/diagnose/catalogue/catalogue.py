"""Catalogue: all known fast paths, from the files that ship and from files of the user."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kernwright.core.errors import BadFile, BadFiles, FileProblems, did_you_mean
from kernwright.diagnose.catalogue.fast_path import FastPath
from kernwright.diagnose.chain import ChainPattern, chain_pattern, chain_patterns

# The files that ship. If several paths cover the same work, the earlier file is preferred.
SHIPPED = ("own.toml", "diffusion.toml", "serving.toml", "libraries.toml")
TABLE = "path"
_SEE = "docs/catalogue.md describes the fields of a fast path"


@dataclass(frozen=True)
class Catalogue:
    """Known fast paths, preferred ones first."""

    paths: tuple[FastPath, ...]

    def running(self, kernel: str, operator: str = "") -> FastPath | None:
        """Return the path that this kernel belongs to: by the kernel's name, else by the operator that launched it."""
        key = kernel, operator
        if key not in self._running:
            by_name = (path for path in self.paths if path.runs(kernel))
            by_operator = (path for path in self.paths if operator and path.runs(kernel, operator))
            self._running[key] = next(by_name, None) or next(by_operator, None)
        return self._running[key]

    def faster(self, kernel: str) -> list[FastPath]:
        """Return the paths that do the work of this kernel better."""
        return [path for path in self.paths if path.outruns(kernel)]

    def replacing(self, chain: str) -> list[FastPath]:
        """Return the paths that replace a chain: one of chains.toml, or one that the path itself spells."""
        return self._by_chain.get(chain, [])

    @cached_property
    def _running(self) -> dict[tuple[str, str], FastPath | None]:
        """The results of `running` by name, because a trace has few names and many launches."""
        return {}

    @cached_property
    def _by_chain(self) -> dict[str, list[FastPath]]:
        found: dict[str, list[FastPath]] = {}
        for path in self.paths:
            for chain in (*path.chains, *([path.name] if path.spellings else [])):
                found.setdefault(chain, []).append(path)
        return found

    @property
    def patterns(self) -> list[ChainPattern]:
        """The chains that the paths spell themselves."""
        return [
            chain_pattern(path.name, path.category, spelling, about=path.about)
            for path in self.paths
            for spelling in path.spellings
        ]


def shipped_catalogue(own: Sequence[Path] = ()) -> Catalogue:
    """Return the catalogue that ships, with files of the user before it.

    Raises:
        BadFile: if a file does not follow the schema; all problems at once.
    """
    return _with_files(tuple(own))


@cache
def _with_files(own: tuple[Path, ...]) -> Catalogue:
    folder = files("kernwright.diagnose.catalogue")
    shipped = {name: folder.joinpath(name).read_text(encoding="utf-8") for name in SHIPPED}
    return read_catalogue({**{str(path): _text_of(path) for path in own}, **shipped})


def read_catalogue(texts: Mapping[str, str]) -> Catalogue:
    """Return the paths of several files, given their texts by name.

    Raises:
        BadFile: if a file does not follow the schema; all problems at once.
    """
    problems = FileProblems()
    paths: dict[str, FastPath] = {}
    for source, text in texts.items():
        entries: list[Any] = []
        with problems.collected():
            entries = _entries(source, text)
        for number, entry in enumerate(entries, start=1):
            with problems.collected():
                path = _path(source, number, entry)
                if path.name in paths:
                    raise BadFile(
                        source, _field(number, entry), "the name is used twice", "give each path its own name"
                    )
                paths[path.name] = path
    problems.raise_any()
    return Catalogue(tuple(paths.values()))


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadFile(path, "", f"cannot be read: {error}", "give a catalogue of fast paths in TOML") from None


def _entries(source: str, text: str) -> list[Any]:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadFile(source, "", f"is not TOML: {error}", "correct the syntax") from None
    if not isinstance(data.get(TABLE), list) or set(data) != {TABLE}:
        found = ", ".join(data) or "nothing"
        raise BadFile(source, "", f"must hold [[{TABLE}]] tables only, got {found}", _SEE)
    return list(data[TABLE])


def _path(source: str, number: int, entry: Any) -> FastPath:
    try:
        path = FastPath.model_validate(entry)
    except ValidationError as error:
        raise _several(
            BadFile(
                source,
                ".".join([_field(number, entry), *map(str, problem["loc"])]),
                f"{problem['msg'].removeprefix('Value error, ')}{_given(problem)}",
                _SEE,
            )
            for problem in error.errors()
        ) from None
    _check_chains(source, path)
    return path


def _several(problems: Iterable[BadFile]) -> BadFile:
    found = list(problems)
    return found[0] if len(found) == 1 else BadFiles(found)


def _given(problem: Any) -> str:
    return "" if isinstance(problem["input"], dict) else f", got {str(problem['input'])[:60]!r}"


def _field(number: int, entry: Any) -> str:
    name = entry.get("name") if isinstance(entry, dict) else None
    return f"{TABLE} {name or number}"


def _check_chains(source: str, path: FastPath) -> None:
    known = {pattern.name for pattern in chain_patterns()}
    for chain in path.chains:
        if chain not in known:
            remedy = did_you_mean(chain, known, "spell chains that chains.toml does not have under `spellings`")
            raise BadFile(source, f"{TABLE} {path.name}.chains", f"there is no chain {chain!r}", remedy)
    for spelling in path.spellings:
        try:
            chain_pattern(path.name, path.category, spelling)
        except ValueError as error:
            raise BadFile(source, f"{TABLE} {path.name}.spellings", str(error), _SEE) from None
