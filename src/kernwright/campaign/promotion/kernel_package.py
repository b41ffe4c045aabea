"""KernelPackage: the files by which a candidate becomes an implementation of a shipped op."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from kernwright.core.errors import BadFile, KernwrightError
from kernwright.core.op import Op
from kernwright.runtime.promoted.promoted_kernel import PROMOTION_FILE, PromotionFile
from kernwright.tasks.candidate import CANDIDATE_FILE, NATIVE, Candidate

OPS = PurePosixPath("src/kernwright/ops")
BACKENDS = {  # by language and kind of device
    ("cpp", "cpu"): "cpu",
    ("python", "cpu"): "cpu",
    ("cuda", "cuda"): "cuda",
    ("triton", "cuda"): "triton",
}
KERNEL_INIT = '''"""{op} for {device}: a kernel that the campaign {campaign} promoted. See {promotion}."""

from __future__ import annotations

from kernwright.runtime.promoted.promoted_kernel import PromotedKernel

KERNEL = PromotedKernel(__file__, __name__)
'''
INDEX = '''"""Kernels that campaigns promoted for ops of this family; written by `kernwright campaign promote`."""

from __future__ import annotations

from kernwright.ops.{family}.promoted import {names}

KERNELS = ({kernels})
'''
HOOK = "OPS = with_promoted(OPS, KERNELS)"
IMPORTS = (
    "from kernwright.ops.{family}.promoted import KERNELS\n"
    "from kernwright.runtime.promoted.promoted_kernel import with_promoted\n"
)


def backend_for(candidate: Candidate, device: str) -> str:
    """Return the backend of a candidate as an implementation. Raise KernwrightError if it cannot become one."""
    kind = device.partition(":")[0]
    backend = BACKENDS.get((candidate.file.language, kind))
    if backend is None:
        known = ", ".join(f"{language} on {place}" for language, place in BACKENDS)
        raise KernwrightError(
            f"a candidate in {candidate.file.language}, judged on {kind}, cannot become a kernel of kernwright.ops",
            f"promotion takes {known}; otherwise use `kernwright campaign export`",
        )
    return backend


@dataclass(frozen=True, kw_only=True)
class KernelPackage:
    """The new files of a promotion, by path in the checkout.

    Attributes:
        family: the family of the op.
        forms: the judged forms of calls.
        provenance: the evidence, for a reader.
    """

    op: Op
    family: str
    candidate: Candidate
    backend: str
    machine: str
    forms: list[dict[str, Any]]
    provenance: Mapping[str, Any]

    def __post_init__(self) -> None:
        _refuse_sources(self.candidate)

    @property
    def name(self) -> str:
        return f"{self.op.name}_{self.backend}"

    @property
    def folder(self) -> PurePosixPath:
        return OPS / self.family / "promoted" / self.name

    @property
    def index(self) -> PurePosixPath:
        return OPS / self.family / "promoted" / "__init__.py"

    @property
    def family_file(self) -> PurePosixPath:
        return OPS / self.family / "family.py"

    def files(self, family_text: str, known: list[str]) -> dict[PurePosixPath, bytes]:
        """Return all files that are new or changed.

        Args:
            family_text: the present family.py.
            known: names of the family's kernels that were promoted before.
        """
        device = {"cpu": "a CPU", "cuda": "CUDA", "triton": "Triton"}[self.backend]
        init = KERNEL_INIT.format(
            op=self.op.name, device=device, campaign=self.provenance["campaign"], promotion=PROMOTION_FILE
        )
        names = sorted({*known, self.name})
        kernels = "".join(f"{name}.KERNEL, " for name in names).rstrip(" " if len(names) == 1 else ", ")
        index = INDEX.format(family=self.family, names=", ".join(names), kernels=kernels)
        texts = {
            self.folder / "__init__.py": init,
            self.folder / PROMOTION_FILE: self._promotion(),
            self.index: index,
            self.family_file: hooked(family_text, self.family),
        }
        sources = {self.folder / name: data for name, data in self.candidate.sources.items() if name != CANDIDATE_FILE}
        return {path: text.encode() for path, text in texts.items()} | sources

    def _promotion(self) -> str:
        """Return promotion.json, checked against the schema that the runtime reads it with."""
        file, build = self.candidate.file, self.candidate.file.build
        names = [name for name in self.candidate.sources if name != CANDIDATE_FILE]
        compiled = [self.candidate.entry_file, *build.sources] if file.language in NATIVE else []
        content = {
            "op": self.op.name,
            "backend": self.backend,
            "contract": self.op.contract,
            "machine": self.machine,
            "source": {
                "language": file.language,
                "file": self.candidate.entry_file,
                "function": self.candidate.entry_function,
                "style": self.candidate.style,
                "files": names,
                "compiled": compiled,
                "cflags": build.cflags,
                "cuda_cflags": build.cuda_cflags,
                "ldflags": build.ldflags,
            },
            "provenance": dict(self.provenance),
            "forms": self.forms,
        }
        text = json.dumps(content, indent=1) + "\n"
        PromotionFile.model_validate_json(text)
        return text


def _refuse_sources(candidate: Candidate) -> None:
    """Raise KernwrightError for sources that cannot move into a package unchanged."""
    own = {PurePosixPath(name).stem for name in candidate.sources if name.endswith(".py")}
    for name, data in candidate.sources.items():
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise KernwrightError(f"{name} is not text in UTF-8", "a promoted kernel has sources only") from None
        if name in ("__init__.py", PROMOTION_FILE):
            raise KernwrightError(f"{name} would hide a file of the promotion", "rename it and judge it again")
        if name.endswith(".py"):
            for module in _imported(name, text):
                if module.partition(".")[0] in own:
                    raise KernwrightError(
                        f"{name} imports {module}, another file of the candidate, by its bare name",
                        "put the kernel into one file and judge it again, so that the judged bytes can ship",
                    )


def _imported(name: str, text: str) -> list[str]:
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise BadFile(name, "", f"is not valid Python: {error.msg}", "correct it and judge it again") from None
    found = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    return found + [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]


def hooked(family_text: str, family: str) -> str:
    """Return family.py with the promoted kernels before the other implementations of its ops."""
    if HOOK in family_text:
        return family_text
    tree = ast.parse(family_text)
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    lines = family_text.splitlines(keepends=True)
    new = IMPORTS.format(family=family).splitlines(keepends=True)
    ours = [node for node in imports if (node.module or "").startswith("kernwright")]
    for text in new:
        module = text.split()[1]
        before = [node for node in ours if (node.module or "") < module]
        at = (before[-1].end_lineno or 0) if before else ours[0].lineno - 1
        lines.insert(at + new.index(text), text)
    return "".join(lines).rstrip("\n") + f"\n\n{HOOK}\n"
