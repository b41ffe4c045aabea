"""Fixtures for all tests: a small task with rows of a few kilobytes, so that a whole judgement takes seconds."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import functools
import hashlib
import json
import os
import shutil
import signal
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # The command line sets this too: threads of a judge must not spin.
os.environ.setdefault("KERNWRIGHT_COMPILED", "off")  # No test may use files that another test left on this machine.
# A shell starts background jobs with SIGINT ignored, and tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if not os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):  # set by tests that run pytest: the import takes a second
    with contextlib.suppress(ImportError):  # hypothesis is optional where only GPU tests run
        from hypothesis import HealthCheck, settings

        # By default hypothesis fails examples that take 200 ms and inputs that take a second, which happens on a busy
        # machine.
        settings.register_profile("kernwright", deadline=None, suppress_health_check=[HealthCheck.too_slow])
        settings.load_profile("kernwright")


@functools.cache
def _no_gpu() -> str | None:
    """Return the reason why GPU tests cannot run here, or None."""
    import torch

    if torch.version.cuda is None:
        return "no CUDA device: this torch is built for the CPU"
    return None if torch.cuda.is_available() else "no CUDA device is seen by torch"


CLAIMS_VARIABLE = "KERNWRIGHT_TEST_CLAIMS"  # folder with the claims of processes that share the tests
CLAIM_FILES_VARIABLE = "KERNWRIGHT_TEST_CLAIM_FILES"  # if set, a process claims whole files instead of single tests
JUDGE_ONCE_VARIABLE = "KERNWRIGHT_TEST_JUDGE_ONCE"  # if set, other tests take the processors' time
# Files that are claimed first, in this order, so that no long one is left to the end. One process runs all files of a
# line, because they share fixtures that take seconds.
LONG_FILES = Path(__file__).with_name("long_files.txt")


class LaterModule(pytest.Module):
    """A test file that is imported once a process has claimed it. Importing all of them takes 15 seconds."""

    is_claimed = False

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        if self.is_claimed:
            return super().collect()
        self.session.stash.setdefault(UNCLAIMED, []).append(self)
        return []


UNCLAIMED = pytest.StashKey[list[LaterModule]]()


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if not (os.environ.get(CLAIMS_VARIABLE) and os.environ.get(CLAIM_FILES_VARIABLE)):
        return None
    return LaterModule.from_parent(parent, path=module_path)


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests that no other process has claimed, where several processes share them.

    pytest must know the next test when a test ends, so a process always claims one ahead.
    """
    folder = os.environ.get(CLAIMS_VARIABLE)
    if not folder or session.testsfailed or session.config.option.collectonly:
        return None
    if os.environ.get(CLAIM_FILES_VARIABLE):
        unclaimed = _claimed_files(Path(folder), session)
    else:
        unclaimed = _claimed_tests(Path(folder), session.items)
    item = next(unclaimed, None)
    while item is not None:
        following = next(unclaimed, None)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        item = following
    return True


def _claimed_tests(folder: Path, items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield the tests that this process claims: slow ones early with a quick one after each, so that no process holds
    two slow tests while others have nothing to do."""
    slow = [item for item in items if item.get_closest_marker("slow")]
    quick = [item for item in items if not item.get_closest_marker("slow")]
    order = [item for pair in zip_longest(slow, quick) for item in pair if item is not None]
    return (item for item in order if _claims(folder, item.nodeid))


def _claimed_files(folder: Path, session: pytest.Session) -> Iterator[pytest.Item]:
    """Yield the tests of files that this process claims. Each file is imported, and its fixtures are set up, once."""
    lines = LONG_FILES.read_text(encoding="utf-8").splitlines() if LONG_FILES.exists() else []
    order = {LONG_FILES.parent / name: place for place, line in enumerate(lines) for name in line.split()}
    is_ours: dict[Path, bool] = {}  # by the first file of a line, or by a file outside all lines

    def place(module: LaterModule) -> int:
        return order.get(module.path, len(lines))

    for module in sorted(session.stash.get(UNCLAIMED, []), key=place):
        first = LONG_FILES.parent / lines[order[module.path]].split()[0] if module.path in order else module.path
        if first not in is_ours:
            is_ours[first] = _claims(folder, str(first))
        if is_ours[first]:
            _claims(folder, str(module.path))  # side_by_side.py counts the files that were begun
            module.is_claimed = True
            items = list(session.genitems(module))
            session.config.hook.pytest_collection_modifyitems(session=session, config=session.config, items=items)
            session.items += items
            session.testscollected += len(items)
            yield from items


def _claims(folder: Path, name: str) -> bool:
    """Return True if this process is the first to claim a test or a file: it creates the claim's file."""
    try:
        (folder / hashlib.sha256(name.encode()).hexdigest()).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and (reason := _no_gpu()):
        pytest.skip(reason)
    if item.get_closest_marker("network") and not os.environ.get("KERNWRIGHT_NETWORK"):
        pytest.skip("downloads packages: set KERNWRIGHT_NETWORK=1 where there is a network")


@pytest.fixture(scope="session", autouse=True)
def one_zygote() -> Iterator[None]:
    """Keep the folders of tests out of the import path of workers.

    pytest moves the folder of each test file to the front of the path, and a judge starts another zygote for another
    path, which takes seconds.
    """
    from kernwright.judge.system.sandbox import import_folders

    def others() -> list[str]:
        return [folder for folder in import_folders() if not Path(folder).is_relative_to(Path(__file__).parent)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernwright.judge.process.environment.import_folders", others)
        yield


@pytest.fixture(scope="session", autouse=True)
def judged_once() -> Iterator[None]:
    """Beside other tests, let judges time each block once (judging_once.py)."""
    if not (os.environ.get(CLAIMS_VARIABLE) and os.environ.get(JUDGE_ONCE_VARIABLE)):
        yield
        return
    from judging_once import judge_once

    with pytest.MonkeyPatch.context() as patch:
        judge_once(patch)
        yield


DOUBLING_OPS = """
from torch import Tensor
from kernwright.core.op import define

@define(outputs=["y"], activations=["x"])
def twice(x: Tensor) -> Tensor:
    return x * 2
"""
TINY_OPS = '''
"""Ops that take microseconds."""

from torch import Tensor

from kernwright.core.op import define


@define(outputs=["y"], activations=["x"])
def axpy(x: Tensor, w: Tensor, *, alpha: float = 2.0) -> Tensor:
    """alpha * x + w"""
    return alpha * x + w


@define(outputs=["total", "twice"], activations=["x", "state"], inplace=["state"])
def accumulate(state: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """state += x; returns copies of the new state and of twice that"""
    state += x
    return state.clone(), state * 2


@define(outputs=["y"], activations=["x"], contract="exact")
def negate(x: Tensor) -> Tensor:
    """-x"""
    return -x
'''

TINY_TASK = """
name = "tiny"
title = "Ops that take microseconds"
origin = "made up for the tests"
definitions = "definitions.py"
neighbours = ["S"]

[tolerance]
fp32 = { atol = 1e-5, rtol = 1e-5 }
bf16 = { atol = 0.05, rtol = 0.05 }

[timing]
block_ms = 1.0
quads_per_round = 7
first_look = 1
max_rounds = 1
"""


def row(identity: str, op: str, inputs: dict[str, Any], outputs: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return one row with its fewest bytes added up. Tensors are float32 and given as lists of sizes."""
    axes = more.get("axes", {})
    specs = [{n: _spec(t) for n, t in group.items()} for group in (inputs, outputs)]
    moved = sum(_bytes(t, axes) for group in specs for t in group.values())
    moved += sum(_bytes(specs[0][name], axes) for name in more.pop("inplace", ()))
    return {
        "id": identity, "op": op, "set": "smoke", "inputs": specs[0], "outputs": specs[1], "bytes_min": moved, **more,
    }  # fmt: skip


def _spec(tensor: Any) -> dict[str, Any]:
    return tensor if isinstance(tensor, dict) else {"shape": tensor, "dtype": "fp32"}


def _bytes(tensor: dict[str, Any], axes: dict[str, int]) -> int:
    count = {"bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8, "i32": 4, "i64": 8, "bool": 1, "u8": 1}[tensor["dtype"]]
    for size in tensor["shape"]:
        count *= axes[size] if isinstance(size, str) else size
    return count


def tiny_rows() -> list[dict[str, Any]]:
    sizes = {"axes": {"S": 6, "D": 64}}
    x, w = ["S", "D"], ["D"]
    return [
        row("axpy_small", "axpy", {"x": x, "w": w}, {"y": x}, **sizes),
        row("axpy_wide", "axpy", {"x": x, "w": w}, {"y": x}, axes={"S": 4, "D": 200}, scalars={"alpha": 3.0}),
        row("huge", "axpy", {"x": x, "w": w}, {"y": x}, axes={"S": 2**20, "D": 2**16}, set="production"),
        row("accumulate", "accumulate", {"state": x, "x": x}, {"total": x, "twice": x}, inplace=["state"], **sizes),
        row("negate", "negate", {"x": x}, {"y": x}, **sizes),
    ]


@pytest.fixture(scope="session")
def write_task() -> Callable[..., Path]:
    """Write a task folder: the tiny task, in which each of the three files can be replaced."""

    def write(
        folder: Path, toml: str = TINY_TASK, ops: str = TINY_OPS, rows: list[dict[str, Any]] | None = None
    ) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "task.toml").write_text(toml)
        (folder / "definitions.py").write_text(ops)
        lines = [json.dumps(r) for r in (tiny_rows() if rows is None else rows)]
        (folder / "workloads.jsonl").write_text("\n".join(lines) + "\n")
        return folder

    return write


@pytest.fixture(scope="session")
def write_doubling(write_task: Callable[..., Path]) -> Callable[..., Path]:
    """Write a task whose one op doubles x, with a row for each width and baselines for comparison."""

    def write(folder: Path, *widths: int, prefix: str = "r", tokens: int = 8, baselines: str = "", **more: str) -> Path:
        rows = [
            row(f"{prefix}{n}", "twice", {"x": ["S", "D"]}, {"y": ["S", "D"]}, axes={"S": tokens, "D": n})
            for n in widths
        ]
        write_task(folder, ops=DOUBLING_OPS, rows=rows, **more)
        if baselines:
            (folder / "baselines.py").write_text(baselines)
        return folder

    return write


@pytest.fixture(scope="session")
def make_row() -> Callable[..., dict[str, Any]]:
    return row


@pytest.fixture(scope="session")
def task_texts() -> dict[str, str]:
    return {"toml": TINY_TASK, "ops": TINY_OPS}


@pytest.fixture(scope="session")
def tiny_row_dicts() -> Callable[[], list[dict[str, Any]]]:
    return tiny_rows


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory, write_task: Callable[..., Path]) -> Path:
    return write_task(tmp_path_factory.mktemp("tasks") / "tiny")


@pytest.fixture(scope="session")
def write_candidate() -> Callable[..., Path]:
    """Write a candidate folder from one source file and its candidate.toml."""

    def write(folder: Path, source: str, *, language: str = "python", op: str = "axpy", more: str = "") -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        name = "kernel.cc" if language == "cpp" else "kernel.py"
        (folder / name).write_text(source)
        toml = f'op = "{op}"\nlanguage = "{language}"\nentry = "{name}:{op}"\n{more}'
        (folder / "candidate.toml").write_text(toml)
        return folder

    return write


@pytest.fixture(scope="session")
def private_tmp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give the tests their own temporary files and locks, so that they share none with judges elsewhere on the
    machine."""
    folder = tmp_path_factory.mktemp("tmpdir")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setenv("KERNWRIGHT_LOCKS", str(folder))
        patch.setattr(tempfile, "tempdir", str(folder))
        yield folder


# The machine's folder, not `private_tmp`.
MUCH_GPU_MEMORY = Path(tempfile.gettempdir()) / "kernwright-much-gpu-memory.lock"


@pytest.fixture
def much_gpu_memory() -> Iterator[None]:
    """Hold a lock for tests that take tens of gigabytes, so that one runs at a time, and wait until the memory is
    free."""
    import torch

    with MUCH_GPU_MEMORY.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        end = time.monotonic() + 100.0
        while torch.cuda.mem_get_info()[0] < 60 * 2**30 and time.monotonic() < end:
            time.sleep(0.2)
        yield
        torch.cuda.empty_cache()


class Quiet:
    """Progress without output."""

    def phase(self, what: str, steps: int) -> None: ...

    def step(self, note: str) -> None: ...


@pytest.fixture(scope="session")
def quiet() -> Quiet:
    return Quiet()


SHIPPED_ADAPTERS = """
def slow(op):
    from kernwright.core.registry import shipped_ops
    reference = shipped_ops()[op].reference

    def run(*tensors, **scalars):
        for _ in range(4):
            result = reference(*tensors, **scalars)
        return result
    return run
"""


@pytest.fixture(scope="session")
def ops_task(tmp_path_factory: pytest.TempPathFactory, write_task: Callable[..., Path]) -> Path:
    """Write a task of shipped ops. One row has a kernel on a CPU, one runs its reference there, and one op has no
    implementation."""
    root = tmp_path_factory.mktemp("ops")
    x, modulation = ({"shape": shape, "dtype": "bf16"} for shape in ([1, "S", "D"], [1, "D"]))
    sizes = {"axes": {"S": 24, "D": 256}}
    given = {"x": x, "scale": modulation, "shift": modulation}
    rows = [
        row("normed", "norm_scale_shift", given, {"y": x}, **sizes),
        row("scaled", "scale_shift", given, {"y": x}, **sizes),
        row("copied", "copy_contiguous", {"a": ["S", "D"]}, {"out": ["S", "D"]}, **sizes),
    ]
    toml = TINY_TASK.replace('name = "tiny"', 'name = "ours"').replace('definitions = "definitions.py"\n', "")
    folder = write_task(root / "tasks" / "ours", toml=toml, rows=rows)
    (folder / "baselines.py").write_text(SHIPPED_ADAPTERS)
    return folder


@pytest.fixture(scope="session")
def swept_ops(ops_task: Path, quiet: Quiet) -> Path:
    """Run a real sweep of the shipped ops: the row with a kernel against eager and a slow adapter, the row without one
    against eager."""
    from kernwright.campaign.sweep import Sweep, legs_of
    from kernwright.tasks.task import load_task

    root = ops_task.parents[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNWRIGHT_LOCKS", str(root))
        task = load_task(ops_task)
        legs = [leg for name in ("eager", "slow") for leg in legs_of([task], name, ["kernwright"], "cpu")]
        legs.pop(-2)  # The reference against the slow adapter is not needed.
        list(Sweep(legs=legs, rows="smoke", device="cpu", ledger=root / "ledger", wait_s=60.0).run(quiet))
    return root


# Wheels of a few bytes that pip and an unpacker accept as real.


def recorded(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


@pytest.fixture(scope="session")
def write_wheel() -> Callable[..., Path]:
    def write(
        folder: Path,
        name: str,
        version: str = "1.0",
        files: dict[str, str | bytes] | None = None,
        tag: str = "py3-none-any",
        record: dict[str, str] | None = None,
    ) -> Path:
        """Write a wheel of ``files``. ``record`` overrides entries of its RECORD."""
        module = name.replace("-", "_").lower()
        info = f"{module}-{version}.dist-info"
        held = {
            key: value if isinstance(value, bytes) else value.encode()
            for key, value in (files if files is not None else {f"{module}/__init__.py": f"v = {version!r}\n"}).items()
        }
        held[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
        held[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n".encode()
        lines = [f'"{key}",{(record or {}).get(key, recorded(data))},{len(data)}' for key, data in held.items()]
        held[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,"]).encode()
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{module}-{version}-{tag}.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for key, data in held.items():
                archive.writestr(key, data)
        return path

    return write


@pytest.fixture
def copied_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy wheels from a folder. pip would download them from it, which takes a second."""
    from kernwright.core.errors import KernwrightError

    def copy(pins: Iterable[Any], _: object, source: Any, folder: Path) -> None:
        for pin in pins:
            found = list(source.folder.glob(f"{pin.name.replace('-', '_')}-{pin.version}-*.whl"))
            if not found:
                raise KernwrightError(f"{source} has no wheel of {pin}", "put the wheel into that folder")
            shutil.copy(found[0], folder)

    monkeypatch.setattr("kernwright.packages.download._pip_download", copy)


@pytest.fixture
def shelf(tmp_path: Path, write_wheel: Callable[..., Path]) -> Any:
    """Return an empty folder for wheels (fake_package.Shelf)."""
    from fake_package import Shelf

    return Shelf(tmp_path / "shelf", write_wheel)
