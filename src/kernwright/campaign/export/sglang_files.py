"""SglangFiles: the files of an export: launcher, kernel, registration, test and benchmark."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from string import Template
from typing import Any

from kernwright.campaign.export.judged_facts import JudgedFacts
from kernwright.campaign.export.reference_source import ReferenceSource
from kernwright.campaign.export.sglang_tree import SglangTree
from kernwright.core.errors import KernwrightError
from kernwright.core.op import Op
from kernwright.tasks.candidate import CANDIDATE_FILE, NATIVE, Candidate
from kernwright.tasks.task import Task
from kernwright.tasks.tensor import TORCH_NAMES
from kernwright.tasks.workload import Workload

SUPPORTED = ("triton", "cuda", "cpp")
TEMPLATES = PurePosixPath("templates")
MOST_CASES = 8  # rows in the exported test, smallest first
MOST_BENCHMARKED = 24


@dataclass(frozen=True, kw_only=True)
class SglangFiles:
    """The export of one candidate into one tree.

    Attributes:
        name: name of the public function, and of the op in the registry's group `diffusion`.
        domain: subfolder of the diffusion kernels.
        forms: the judged forms of calls.
        provenance: lines about the evidence.
    """

    tree: SglangTree
    task: Task
    op: Op
    candidate: Candidate
    name: str
    domain: str
    forms: Sequence[Mapping[str, Any]]
    provenance: Sequence[str]

    def __post_init__(self) -> None:
        if self.candidate.file.language not in SUPPORTED:
            raise KernwrightError(
                f"a candidate in {self.candidate.file.language} cannot be exported to sglang",
                f"export takes {', '.join(SUPPORTED)}; rewrite the candidate in one of them and judge it",
            )
        kernels = [name for name in self.candidate.sources if name.endswith(".py")]
        if self.candidate.file.language == "triton" and kernels != [self.candidate.entry_file]:
            raise KernwrightError(
                f"the candidate has {len(kernels)} Python files", "put the kernel into one file and judge it again"
            )

    @property
    def is_native(self) -> bool:
        return self.candidate.file.language in NATIVE

    @property
    def launcher(self) -> str:
        """Return the name of the launcher's module."""
        return f"{self.name}_{'jit' if self.is_native else 'triton'}"

    @property
    def launcher_path(self) -> PurePosixPath:
        return self.tree.package(f"kernels/ops/diffusion/{self.domain}/{self.launcher}.py")

    @cached_property
    def facts(self) -> JudgedFacts:
        return JudgedFacts(self.op, self.forms)

    def new_files(self) -> dict[PurePosixPath, bytes]:
        """Return all new files by path in the tree."""
        tests = PurePosixPath("test/registered/kernels")
        return {
            self.launcher_path: self._launcher().encode(),
            **self._kernels(),
            tests / f"ops/diffusion/test_{self.name}.py": self._filled("test.py.txt").encode(),
            tests / f"benchmark/diffusion/bench_{self.name}.py": self._filled("bench.py.txt").encode(),
        }

    def facade(self) -> str:
        """Return the facade of the diffusion kernels with this kernel."""
        backend = "JIT" if self.is_native else "TRITON"
        is_cpu = self.candidate.file.language == "cpp"
        device = "frozenset({CapabilityRequirement(device=DeviceType.CPU)})" if is_cpu else "_CUDA"
        spec = (
            f'    (\n        "diffusion.{self.name}",\n        KernelBackend.{backend},\n'
            f'        "{self.domain}.{self.launcher}:{self.name}",\n        {device},\n    ),\n'
        )
        export = f'    "{self.name}": "{self.domain}.{self.launcher}",\n'
        return self.tree.registrations.with_kernel(spec, export, "DeviceType" if is_cpu else "")

    # The kernel and its launcher

    @property
    def _sources(self) -> str:
        """Return the folder of native sources, relative to the package's csrc."""
        return f"diffusion/{self.name}"

    def _kernels(self) -> dict[PurePosixPath, bytes]:
        """Return the judged sources, byte by byte."""
        files = {name: data for name, data in self.candidate.sources.items() if name != CANDIDATE_FILE}
        if self.is_native:
            return {self.tree.package(f"kernels/jit/csrc/{self._sources}/{name}"): data for name, data in files.items()}
        place = self.launcher_path.with_name(f"{self.name}_kernel.py")
        return {place: files[self.candidate.entry_file]}

    def _launcher(self) -> str:
        return self._filled("launcher_native.py.txt" if self.is_native else "launcher_triton.py.txt")

    def _call(self) -> str:
        """Return the lines that call the kernel and return the outputs."""
        tensors = [own.name for own in self.op.tensor_parameters]
        scalars = list(self.op.scalar_defaults)
        named = [f"{name}={name}" for name in scalars]
        function = f"_module().{self.candidate.entry_function}" if self.is_native else "_function"
        if self.candidate.style == "returns":
            return f"    return {function}({', '.join([*tensors, *named])})\n"
        outs = [f"{name}_out" if name in (*tensors, *scalars) else name for name in self.op.outputs]
        made = [f"    {own} = {self.facts.output(name)}\n" for own, name in zip(outs, self.op.outputs, strict=True)]
        given = f"({', '.join(outs)})" if len(outs) > 1 else "".join(outs)
        last = [*scalars, *outs] if self.is_native else [*named, *([f"out={given}"] if outs else [])]
        call = f"    {function}({', '.join([*tensors, *last])})\n"
        return "".join(made) + call + (f"    return {', '.join(outs)}\n" if outs else "")

    def _parameters(self) -> str:
        given = [
            f"    {own.name}: {'Optional[torch.Tensor] = None' if own.optional else 'torch.Tensor'},\n"
            for own in self.op.tensor_parameters
        ]
        scalars = [
            f"    {name}: {type(value).__name__} = {value!r},\n" for name, value in self.op.scalar_defaults.items()
        ]
        return "".join([*given, *(["    *,\n", *scalars] if scalars else [])])

    def _flags(self) -> str:
        build = self.candidate.file.build
        lines = [
            f"        {name}={list(values)!r},\n"
            for name, values in (
                ("extra_cflags", build.cflags), ("extra_cuda_cflags", build.cuda_cflags),
                ("extra_ldflags", build.ldflags),
            )
            if values
        ]  # fmt: skip
        return "".join(lines)

    def _files(self, *, cuda: bool) -> str:
        names = [self.candidate.entry_file, *self.candidate.file.build.sources]
        return repr([f"{self._sources}/{name}" for name in names if name.endswith(".cu") == cuda])

    # Text

    def _filled(self, template: str) -> str:
        from importlib.resources import files

        text = files("kernwright.campaign.export").joinpath(str(TEMPLATES / template)).read_text(encoding="utf-8")
        summary = inspect.cleandoc(self.op.reference.__doc__ or self.op.name).splitlines()[0]
        tensors = [own.name for own in self.op.tensor_parameters]
        kind = self.candidate.file.language
        language = {"triton": "Triton", "cuda": "CUDA", "cpp": "C++"}[kind]
        return Template(text).substitute(
            name=self.name,
            summary=summary.replace('"""', "'''"),
            language=language,
            provenance="\n".join(self.provenance),
            domain=self.domain,
            launcher=self.launcher,
            function=self.candidate.entry_function,
            op=self.op.name,
            tensors=", ".join(tensors),
            given=", ".join(f'"{name}": {name}' for name in tensors),
            given_scalars=", ".join(f'"{name}": {name}' for name in self.op.scalar_defaults),
            parameters=self._parameters(),
            returned=self._returned(),
            call=self._call(),
            dtypes=self.facts.table("dtype"),
            dims=self.facts.table("dims"),
            layouts=self.facts.table("layout"),
            scalars=self.facts.scalars(),
            optional=self.facts.optional,
            device="cpu" if kind == "cpp" else "cuda",
            cpp_files=self._files(cuda=False),
            cuda_files=self._files(cuda=True),
            flags=self._flags(),
            sources=self._sources,
            reference=ReferenceSource.of(self.op).text(),
            cases=_cases(self._test_rows()),
            rows=_cases(self._benchmark_rows()),
            tolerances=self._tolerances(),
            outputs=repr(self.op.outputs),
            inplace=repr(self.op.inplace),
            indices=repr(dict(self.op.indices)),
        )

    def _returned(self) -> str:
        words = ["torch.Tensor"] * len(self.op.outputs)
        return "None" if not words else words[0] if len(words) == 1 else f"tuple[{', '.join(words)}]"

    def _tolerances(self) -> str:
        found = {TORCH_NAMES[dtype]: (own.atol, own.rtol) for dtype, own in self.task.file.tolerance.items()}
        return "{\n" + "".join(f"    torch.{name}: {pair!r},\n" for name, pair in found.items()) + "}"

    def _rows(self) -> list[Workload]:
        rows = [row for row in (*self.task.rows, *self.task.grid_rows) if row.op == self.op.name]
        plain = [row for row in rows if not any(own.offset for own in row.inputs.values())]
        return sorted(plain, key=lambda row: (row.bytes_min, row.id))

    def _test_rows(self) -> list[Workload]:
        """Return the smallest rows, at least one of each dtype."""
        rows = self._rows()
        kinds = {tuple(own.dtype for own in row.inputs.values()): row for row in reversed(rows)}
        return list({row.id: row for row in (*kinds.values(), *rows)}.values())[:MOST_CASES]

    def _benchmark_rows(self) -> list[Workload]:
        timed = [row for row in self._rows() if row.set == "production"]
        return (timed or [row for row in self._rows() if row.set == "smoke"])[-MOST_BENCHMARKED:]


def _cases(rows: Sequence[Workload]) -> str:
    """Return a list, as text, of the calls of rows: id, tensors with shape, dtype and strides, and scalars."""
    lines = []
    for row in rows:
        tensors = ", ".join(
            f'"{name}": ({own.shape!r}, torch.{own.torch_dtype_name}, {own.strides!r})'
            for name, own in row.concrete_inputs().items()
        )
        lines.append(f'    ("{row.id}", {{{tensors}}}, {row.scalars!r}),\n')
    return "[\n" + "".join(lines) + "]"
