"""SglangTree: a tree of SGLang with the layout of 0.5.23, as a checkout or as an unpacked wheel."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from kernwright.core.errors import BadFile, KernwrightError

FACADE = PurePosixPath("sglang/kernels/ops/diffusion/__init__.py")
NEEDED = (FACADE, PurePosixPath("sglang/kernels/registry.py"), PurePosixPath("sglang/kernels/spec.py"))
DOMAINS = ("activation", "attention", "layout", "modulate", "norm", "rope")


@dataclass(frozen=True)
class SglangTree:
    """A tree. `root` is the folder that the user named, `python` the folder of the package below it."""

    root: Path
    python: PurePosixPath

    @classmethod
    def at(cls, root: Path) -> SglangTree:
        for python in (PurePosixPath("python"), PurePosixPath()):
            if all((root / python / name).is_file() for name in NEEDED):
                return cls(root.resolve(), python)
        raise KernwrightError(
            f"{root} is no tree of SGLang with the layout of 0.5.23: it has no {FACADE}",
            "name a checkout of SGLang, or a folder with the unpacked wheel (pip download --no-deps sglang==0.5.23)",
        )

    def package(self, path: str) -> PurePosixPath:
        """Return the place of a file of the package, relative to the root."""
        return self.python / "sglang" / path

    @property
    def facade(self) -> PurePosixPath:
        return self.python / FACADE

    def read(self, path: PurePosixPath) -> str | None:
        """Return the text of a file; None if it does not exist."""
        try:
            return (self.root / path).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise BadFile(self.root / path, "", f"cannot be read: {error}", "use an unchanged tree") from None

    @cached_property
    def registrations(self) -> Registrations:
        return Registrations(self.root / self.facade, self.read(self.facade) or "")


@dataclass(frozen=True)
class Registrations:
    """The facade of the diffusion kernels: the specs of the registry, and the public names."""

    path: Path
    text: str

    def _value(self, name: str) -> ast.Tuple | ast.Dict:
        try:
            tree = ast.parse(self.text)
        except SyntaxError as error:
            raise BadFile(self.path, "", f"is not valid Python: {error.msg}", "use an unchanged tree") from None
        for node in tree.body:
            target = getattr(node, "target", None) or next(iter(getattr(node, "targets", [])), None)
            value = getattr(node, "value", None)
            if getattr(target, "id", "") == name and isinstance(value, ast.Tuple | ast.Dict):
                return value
        raise BadFile(self.path, name, "is not there", "use a tree with the layout of sglang 0.5.23")

    @property
    def ops(self) -> set[str]:
        """Return the ids of all registered ops."""
        specs = self._value("_SPECS")
        assert isinstance(specs, ast.Tuple)
        heads = [each.elts[0] for each in specs.elts if isinstance(each, ast.Tuple) and each.elts]
        return {head.value for head in heads if isinstance(head, ast.Constant) and isinstance(head.value, str)}

    @property
    def names(self) -> set[str]:
        """Return the public names."""
        exports = self._value("_EXPORTS")
        assert isinstance(exports, ast.Dict)
        return {key.value for key in exports.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}

    def with_kernel(self, spec: str, export: str, imported: str = "") -> str:
        """Return the text with one more spec and one more public name, each as the last of its list.

        Args:
            imported: a further name to import from `sglang.kernels.spec`.
        """
        specs, exports = self._value("_SPECS"), self._value("_EXPORTS")
        if specs.lineno > exports.lineno:
            raise BadFile(self.path, "_SPECS", "follows _EXPORTS", "use a tree with the layout of sglang 0.5.23")
        lines = self.text.splitlines(keepends=True)
        for value, new in ((exports, export), (specs, spec)):
            at = (value.end_lineno or 0) - 1  # the line with the closing bracket
            if lines[at].strip()[:1] not in (")", "}"):
                raise BadFile(self.path, "", "ends a list on the line of its last entry", "use an unchanged tree")
            lines.insert(at, new)
        for number, line in enumerate(lines) if imported and imported not in self.text else ():
            start = "from sglang.kernels.spec import "
            if line.startswith(start):
                names = sorted({*line.removeprefix(start).strip().split(", "), imported})
                lines[number] = f"{start}{', '.join(names)}\n"
                return "".join(lines)
        return "".join(lines)
