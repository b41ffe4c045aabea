"""Checkout: a clone of the project to which a new family is added, completely or not at all."""

from __future__ import annotations

import ast
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from kernwright.core.errors import BadFile, EnvironmentProblem, KernwrightError
from kernwright.scaffold.family import OPS, TESTS, Family

INDEX = OPS / "__init__.py"


@dataclass(frozen=True)
class Checkout:
    root: Path

    @classmethod
    def at(cls, root: Path) -> Checkout:
        for needed in (INDEX, TESTS / "emulation.py", TESTS / "interpreted_cases.py"):
            if not (root / needed).is_file():
                raise KernwrightError(
                    f"{root.absolute()} is no checkout of Kernwright: it has no {needed}",
                    "run this in the root of a clone, or name that with --root",
                )
        return cls(root)

    @cached_property
    def index(self) -> Index:
        return Index(self.root / INDEX, (self.root / INDEX).read_text(encoding="utf-8"))

    def refuse_taken(self, new: Family) -> None:
        families = self.index.families
        if new.op in families:
            raise KernwrightError(
                f"there is an op {new.op} already, in the family {families[new.op]}", "choose another name"
            )
        if new.name in families:
            raise KernwrightError(
                f"there is an op {new.name}, which a family of that name would hide in kernwright.ops",
                "name the family after what its ops have in common",
            )
        if new.name in families.values():
            raise KernwrightError(
                f"there is a family {new.name} already",
                f"choose another, or add the op to {new.folder} by hand (CONTRIBUTING.md, Add an op)",
            )
        for word in (new.op, new.name):
            for there in (OPS / word, OPS / f"{word}.py"):
                if (self.root / there).exists():
                    raise KernwrightError(f"{there} exists already", "choose another name")
        # pytest imports a test by its bare name, so two tests of one name in any two folders are an error.
        for place in new.files():
            if place.is_relative_to(TESTS) and (found := sorted((self.root / "tests").rglob(place.name))):
                raise KernwrightError(
                    f"{found[0].relative_to(self.root)} exists already", "choose another name for the family"
                )

    def add(self, new: Family) -> list[PurePosixPath]:
        """Write all files next to their places and then move them there, the index last. Return the new files."""
        self.refuse_taken(new)
        files = new.files()
        index = self.index.with_family(new)
        try:
            staging = Path(tempfile.mkdtemp(prefix=".kernwright-op-new-", dir=self.root))
        except OSError as error:
            raise EnvironmentProblem(
                f"{self.root} cannot be written: {error.strerror}", "make the checkout writable"
            ) from None
        try:
            for place, text in {**files, INDEX: index}.items():
                (staging / place).parent.mkdir(parents=True, exist_ok=True)
                (staging / place).write_text(text, encoding="utf-8")
            shutil.copymode(self.root / INDEX, staging / INDEX)
            whole = [new.folder, *(place for place in files if not place.is_relative_to(new.folder))]
            self._move(staging, whole)
        except OSError as error:
            raise EnvironmentProblem(
                f"the family cannot be written: {error}; nothing was left behind", "make the checkout writable"
            ) from None
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        return list(files)

    def _move(self, staging: Path, whole: list[PurePosixPath]) -> None:
        """Move the files to their places. If a move fails or is interrupted, remove the moved files, because none
        existed before."""
        try:
            for place in whole:
                (staging / place).rename(self.root / place)
            (staging / INDEX).replace(self.root / INDEX)
        except BaseException:
            if (staging / INDEX).exists():  # otherwise the interrupt came after the last move
                for place in whole:
                    if not (staging / place).exists():  # it was moved, so this file is ours
                        _remove(self.root / place)
            raise


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


@dataclass(frozen=True)
class Index:
    """`ops/__init__.py`, which lists the family of each op."""

    path: Path
    text: str

    @cached_property
    def families(self) -> dict[str, str]:
        found: dict[str, str] = ast.literal_eval(self._dictionary)
        return found

    def with_family(self, new: Family) -> str:
        """Return the text with the op's line, in the order of names."""
        keys = list(zip(self.families, self._dictionary.values, strict=True))
        lines = self.text.splitlines(keepends=True)
        lines.insert(_line_for(new.op, keys), f'    "{new.op}": "{new.name}",\n')
        return "".join(lines)

    @cached_property
    def _tree(self) -> ast.Module:
        try:
            return ast.parse(self.text)
        except SyntaxError as error:
            raise BadFile(self.path, "", f"is not valid Python: {error}", "correct the file") from None

    @cached_property
    def _dictionary(self) -> ast.Dict:
        for node in self._tree.body:
            if (
                isinstance(node, ast.AnnAssign)
                and getattr(node.target, "id", "") == "FAMILIES"
                and isinstance(node.value, ast.Dict)
                and node.value.keys
            ):
                return node.value
        raise BadFile(self.path, "FAMILIES", "is not there", "use a checkout of this release of Kernwright")


def _line_for(own: Any, ordered: Sequence[tuple[Any, ast.expr | ast.stmt]]) -> int:
    """Return the number of lines before the new one: up to the first node whose name sorts after it."""
    after = [node for name, node in ordered if name > own]
    if after:
        return after[0].lineno - 1
    return ordered[-1][1].end_lineno or 0
