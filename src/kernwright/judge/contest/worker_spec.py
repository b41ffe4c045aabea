"""WorkerSpec: the code that the worker of one side loads, and the folders that it reads."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from kernwright.baselines.lock import CUTEDSL
from kernwright.baselines.published import PublishedBaseline
from kernwright.core.errors import EnvironmentProblem
from kernwright.core.runtime_interface import BUILDS_VARIABLE
from kernwright.judge.contest.compiled_files import CompiledFiles
from kernwright.judge.contest.compiled_store import CompiledStore
from kernwright.judge.contest.shipped_build import ShippedBuild
from kernwright.judge.protocol.orders import SideOrders
from kernwright.packages.store import Store
from kernwright.tasks.baseline import Baseline
from kernwright.tasks.candidate import Candidate, Style
from kernwright.tasks.task import Task


class WorkerSpec:
    """A side's orders to its worker, the folders that the worker reads, and its scratch folder."""

    def __init__(
        self,
        folder: Path,
        orders: SideOrders,
        environment: dict[str, str] | None = None,
        reads: Sequence[Path] = (),
    ) -> None:
        self.scratch = folder / "scratch"  # the worker may write only here
        self.orders = orders
        self.environment = environment or {}
        self.reads = tuple(reads)
        self.output: Callable[[str], None] | None = None  # receives everything that a worker of this side printed
        self.compiled: CompiledFiles | None = None  # reusable files, for trusted sides
        self.compiles_anew: frozenset[str] = frozenset()  # ops whose first call compiles in every process
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o711)

    @property
    def style(self) -> Style:
        return self.orders.style

    @property
    def is_baseline(self) -> bool:
        """Return whether the side is a baseline, also one in the place of a contender. The shipped ops are none."""
        return self.orders.kind not in ("candidate", "shipped")

    def preloads(self, device: str) -> tuple[str, ...]:
        """Return large modules that the zygote imports, so that workers forked from it start fast.

        Modules that read the environment or folders at import are excluded, since each worker has its own. Triton reads
        at import whether its interpreter is on, and torch's compiler imports Triton. Inductor reads a folder too, but
        only uses it for C++ kernels.
        """
        compiles = self.orders.kind == "compile"
        if device == "cpu":
            return ("torch.fx.experimental.symbolic_shapes",) if compiles else ()
        if compiles:
            return "torch._dynamo", "torch._inductor.compile_fx", "triton.language"
        if self.orders.kind == "package":  # sglang decorates functions for torch's compiler and so imports it
            return "torch._dynamo", "triton.language"
        return ("triton.language",) if self.orders.language == "triton" else ()


def baseline_spec(
    baseline: Baseline, task: Task, folder: Path, device: str = "cpu", ops: Sequence[str] = ()
) -> WorkerSpec:
    """Return the spec of a baseline. `ops` are those that a package will run; without any it needs no files."""
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
        side.compiles_anew = frozenset(task.ops)  # torch traces again in every process
    return side


def candidate_spec(candidate: Candidate, folder: Path, device: str) -> WorkerSpec:
    """Return the spec of a candidate. The worker gets a copy of the hashed bytes, so the digest names what runs."""
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
    """Return the spec of the shipped ops. Built libraries are read; missing ones are built in the worker's scratch."""
    builds = build.laid_out(folder / "builds")
    return WorkerSpec(folder, SideOrders(kind="shipped"), {BUILDS_VARIABLE: str(builds)}, [builds])


def _interpreted(device: str) -> dict[str, str]:
    """Return the variable that runs Triton kernels in the interpreter on a CPU, which is slow."""
    return {"TRITON_INTERPRET": "1"} if device == "cpu" else {}


def _caches_by_one_path() -> dict[str, str]:
    """Return cache folders below /proc/self/cwd, the worker's scratch folder under one name for all workers.

    Inductor's files refer to others by full path, which would be invalid for a later worker. Inductor's C++ compiler
    runs in another directory, so this does not work for chains that also compute on the host.
    """
    here = "/proc/self/cwd"
    return {"TORCHINDUCTOR_CACHE_DIR": f"{here}/inductor", "TRITON_CACHE_DIR": f"{here}/triton"}


def _with_bytecode(scratch: Path) -> dict[str, str]:
    """Return a bytecode folder, so that workers do not compile a package's 100,000 lines of Python each time."""
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(scratch / "bytecode")}


def _open_to_all(folder: Path) -> None:
    """Make a folder readable for the worker, which may run as another user."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else path.stat().st_mode | 0o444)


def _native_loop(folder: Path) -> str:
    """Write the judge's native loop into a judgement's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "native_loop.so"
    library.write_bytes(_compiled_loop())
    return str(library)


@functools.cache
def _compiled_loop() -> bytes:
    """Build the native loop, once per process. This also shows that the machine can build."""
    import tvm_ffi.cpp

    source = Path(__file__).parents[1] / "worker" / "native_loop.cc"
    with tempfile.TemporaryDirectory(prefix="kernwright-loop-") as folder:
        try:
            built = tvm_ffi.cpp.build(name="native_loop", cpp_files=[str(source)], build_directory=folder)
            return Path(built).read_bytes()
        except (RuntimeError, OSError) as error:
            raise EnvironmentProblem(
                f"native code cannot be built here: {str(error).splitlines()[0][:200]}",
                "install a C++ compiler and ninja",
            ) from None
