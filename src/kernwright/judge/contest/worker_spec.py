"""WorkerSpec: what the worker of one side loads and reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernwright.baselines.lock import CUTEDSL
from kernwright.baselines.published import PublishedBaseline
from kernwright.core.errors import EnvironmentProblem
from kernwright.judge.contest.compiled_files import CompiledFiles
from kernwright.judge.contest.compiled_store import CompiledStore
from kernwright.judge.contest.shipped_build import ShippedBuild
from kernwright.judge.protocol.orders import SideOrders
from kernwright.packages.store import Store
from kernwright.runtime.library import BUILDS_VARIABLE
from kernwright.tasks.baseline import Baseline
from kernwright.tasks.candidate import Candidate, Style
from kernwright.tasks.task import Task


class WorkerSpec:
    """A baseline or a candidate: its orders to a worker, what the worker reads for them, and a scratch folder."""

    def __init__(
        self,
        folder: Path,
        orders: SideOrders,
        environment: dict[str, str] | None = None,
        reads: Sequence[Path] = (),
    ) -> None:
        self.scratch = folder / "scratch"  # the worker's own; what lies beside it is not the worker's to change
        self.orders = orders
        self.environment = environment or {}
        self.reads = tuple(reads)
        self.compiled: CompiledFiles | None = None  # of a side whose compilers' work may serve later workers
        self.compiles_anew: frozenset[str] = frozenset()  # ops whose first call compiles, whatever a cache may hold
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o711)

    @property
    def style(self) -> Style:
        return self.orders.style

    @property
    def is_baseline(self) -> bool:
        """In whichever place. The ops that ship are none: they are timed like a candidate."""
        return self.orders.kind not in ("candidate", "shipped")

    def preloads(self, device: str) -> tuple[str, ...]:
        """Large modules that its worker will import: forked with them in it, each new one starts in a moment.

        None that remembers from its import where it was: a worker has an environment and folders of its own. Triton for
        a CPU remembers whether its interpreter was asked for, and all of torch's compiler imports it. Inductor
        remembers a folder too, but only for what its kernels for a CPU include.
        """
        compiles = self.orders.kind == "compile"
        if device == "cpu":
            return ("torch.fx.experimental.symbolic_shapes",) if compiles else ()
        if compiles:
            return "torch._dynamo", "torch._inductor.compile_fx", "triton.language"
        if self.orders.kind == "package":  # sglang marks functions for torch's compiler, which imports half of it
            return "torch._dynamo", "triton.language"
        return ("triton.language",) if self.orders.language == "triton" else ()


def baseline_spec(
    baseline: Baseline, task: Task, folder: Path, device: str = "cpu", ops: Sequence[str] = ()
) -> WorkerSpec:
    """`ops`: those that will be asked for, where the baseline is a package. Without any it needs nothing."""
    definitions = str(task.folder / task.file.definitions) if task.file.definitions else None
    orders = SideOrders(kind=baseline.kind, definitions=definitions)
    if baseline.kind == "package":
        published = PublishedBaseline.find(baseline.name)
        found, places = published.orders(ops, Store()) if ops else ({}, [])
        environment = _interpreted(device) | _with_bytecode(folder / "scratch")
        side = WorkerSpec(folder, SideOrders(**orders.model_dump() | found), environment, [task.folder, *places])
        side.compiles_anew = frozenset(op for op in ops if published.needs(op, CUTEDSL))
        return side
    if baseline.kind == "adapter":
        orders = SideOrders(kind="adapter", file=str(task.adapters), function=baseline.name, definitions=definitions)
    kept = baseline.kind == "compile" and device != "cpu" and CompiledStore.here() is not None
    side = WorkerSpec(folder, orders, _caches_by_one_path() if kept else None, reads=[task.folder])
    if baseline.kind == "compile":
        side.compiles_anew = frozenset(task.ops)  # torch traces it again in every process
    return side


def candidate_spec(candidate: Candidate, folder: Path, device: str) -> WorkerSpec:
    """The worker gets a copy of the bytes that were hashed, so what runs is what the digest names."""
    for name, data in candidate.sources.items():
        copy = folder / "sources" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(data)
    needs_loop = candidate.file.language == "cpp" and device == "cpu"
    loop = _native_loop(folder.parent / "loop") if needs_loop else None
    reads = [folder / "sources", *([Path(loop).parent] if loop else [])]
    for path in reads:
        _open_to_all(path)
    return WorkerSpec(
        folder,
        SideOrders(
            kind="candidate",
            language=candidate.file.language,
            folder=str(folder / "sources"),
            file=candidate.entry_file,
            function=candidate.entry_function,
            build=candidate.file.build,
            build_folder=str(folder / "scratch" / "build"),
            style=candidate.style,
            loop=loop,
        ),
        _interpreted(device) if candidate.file.language == "triton" else {},
        reads,
    )


def shipped_spec(build: ShippedBuild, folder: Path) -> WorkerSpec:
    """The ops that ship, as a user calls them. What is built for them is read, and anything else of theirs is built in
    the worker's scratch."""
    builds = build.laid_out(folder / "builds")
    return WorkerSpec(folder, SideOrders(kind="shipped"), {BUILDS_VARIABLE: str(builds)}, [builds])


def _interpreted(device: str) -> dict[str, str]:
    """Triton has no code for a CPU: its interpreter runs the kernel there, slowly and for correctness alone."""
    return {"TRITON_INTERPRET": "1"} if device == "cpu" else {}


def _caches_by_one_path() -> dict[str, str]:
    """Inductor's files name others by their full paths, where it writes what it measured: kept for a later worker they
    would lead into a folder that is gone. A worker stands in its own scratch, which has one name for all of them.

    Not for whoever stands elsewhere: Inductor's C++ compiler, which a chain needs that computes on the host too."""
    here = "/proc/self/cwd"
    return {"TORCHINDUCTOR_CACHE_DIR": f"{here}/inductor", "TRITON_CACHE_DIR": f"{here}/triton"}


def _with_bytecode(scratch: Path) -> dict[str, str]:
    """Packages come without: CuTe-DSL's alone is a hundred thousand lines, which every worker would compile anew."""
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(scratch / "bytecode")}


def _open_to_all(folder: Path) -> None:
    """Readable, whatever the judge's umask: the worker may be another user."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else path.stat().st_mode | 0o444)


def _native_loop(folder: Path) -> str:
    """The judge's own compiled loop, built once a judgement: it also shows that this machine can build at all."""
    import tvm_ffi.cpp

    source = Path(__file__).parents[1] / "worker" / "native_loop.cc"
    try:
        return str(tvm_ffi.cpp.build(name="native_loop", cpp_files=[str(source)], build_directory=str(folder)))
    except (RuntimeError, OSError) as error:
        raise EnvironmentProblem(
            f"native code cannot be built here: {str(error).splitlines()[0][:200]}", "install a C++ compiler and ninja"
        ) from None
