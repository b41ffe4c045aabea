"""Family: a new op with all files of an op family (definition, kernels, tests), written from templates.

The templates are plain text with `$op` and `$family` in it. Their results pass the project's own lint and types, for
every name that `Family.named` accepts.
"""

from __future__ import annotations

import keyword
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from itertools import groupby
from pathlib import Path, PurePosixPath
from string import Template

from kernwright.core.errors import KernwrightError

TEMPLATES = Path(__file__).parent / "templates"
OPS, TESTS = PurePosixPath("src/kernwright/ops"), PurePosixPath("tests/ops")
LONGEST = 32  # letters of a name: a longer name would change the layout of lines


@dataclass(frozen=True)
class Family:
    """Names of an op and of its family that are valid in Python, in C++ and in the generated files."""

    op: str
    name: str

    @classmethod
    def named(cls, op: str, name: str) -> Family:
        for word, what in ((op, "an op"), (name, "a family")):
            if not re.fullmatch("[a-z][a-z0-9_]*", word) or keyword.iskeyword(word):
                raise KernwrightError(
                    f"{word!r} cannot be the name of {what}",
                    "use small letters, digits and _, a letter first, and no word of Python's own",
                )
            if len(word) > LONGEST:
                raise KernwrightError(f"{word!r} is longer than {LONGEST} letters", "choose a shorter name")
        if op == name:
            raise KernwrightError(
                f"{op!r} cannot be an op and its family: the folder would hide the op in kernwright.ops",
                "name the family after what its ops have in common",
            )
        if op in _words():
            raise KernwrightError(
                f"{op!r} is a name that the generated files use for something else", "choose one that says more"
            )
        return cls(op, name)

    def files(self) -> dict[PurePosixPath, str]:
        """The files by their place in a checkout."""
        return dict(self._written())

    @property
    def folder(self) -> PurePosixPath:
        return OPS / self.name

    @property
    def test(self) -> PurePosixPath:
        return TESTS / f"test_{self.name}.py"

    def _written(self) -> Iterator[tuple[PurePosixPath, str]]:
        for template in sorted([*TEMPLATES.glob("family/*.template"), *TEMPLATES.glob("tests/*.template")]):
            own = template.name.removesuffix(".template")
            place = self.folder / own if template.parent.name == "family" else self.test
            text = Template(template.read_text(encoding="utf-8")).substitute(op=self.op, family=self.name)
            yield place, _with_sorted_imports(text) if place.suffix == ".py" else text


def in_import_order(module: str) -> list[tuple[int, str]]:
    """Sort imports as the linter does: by letters, and numbers by value."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", module) if part]


def _with_sorted_imports(text: str) -> str:
    """Sort the imports of a family's modules, whose order depends on its name."""
    lines: list[str] = []
    for is_import, run in groupby(text.splitlines(keepends=True), lambda line: line.startswith("from ")):
        own = list(run)
        lines += sorted(own, key=lambda line: in_import_order(line.split()[1])) if is_import else own
    return "".join(lines)


def _words() -> set[str]:
    """Return every name in the generated Python except the op's own: for example, `def launch` would hide another
    launch."""
    stranger = "name_of_the_op"
    texts = [text for place, text in Family(stranger, "family").files().items() if place.suffix == ".py"]
    tokens = (token for text in texts for token in tokenize.generate_tokens(StringIO(text).readline))
    return {token.string for token in tokens if token.type == tokenize.NAME} - {stranger}
