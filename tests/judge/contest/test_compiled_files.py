"""Compiled files of a trusted side are passed to its twin and to later judgements. A candidate neither gives nor gets
any."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernwright.baselines.shipped import Shipped
from kernwright.judge.contest.compiled_files import CompiledFiles
from kernwright.judge.contest.compiled_store import VARIABLE, CompiledStore
from kernwright.judge.contest.contestant import Contestant
from kernwright.judge.request import JudgeRequest, judge
from kernwright.tasks.baseline import Baseline

ADAPTER = '''
"""A package that compiles, as far as a judge can see."""
import os
from pathlib import Path

import torch


def compiler(op):
    def axpy(x, w, *, alpha=2.0):
        made = Path(os.environ["TRITON_CACHE_DIR"], "kernel.cubin")
        if not made.exists():
            made.parent.mkdir(exist_ok=True)
            made.write_text(f"made by {os.getpid()}")
        return torch.add(w, x, alpha=alpha)

    return axpy
'''
CANDIDATE = """
import os
import torch

def axpy(x, w, *, alpha=2.0):
    folder = os.environ["TRITON_CACHE_DIR"]
    if os.path.exists(folder) and os.listdir(folder) != ["mine"]:
        raise RuntimeError("finds what is not its own")
    os.makedirs(folder, exist_ok=True)
    open(os.path.join(folder, "mine"), "w").close()
    return torch.add(w, x, alpha=alpha)
"""

COMPILES_TWICE = """
import os, shutil, sys
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernwright.judge.contest.compiled_files import CompiledFiles


@triton.jit
def twice(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at) * 2)


one, two = (CompiledFiles(Path(folder), {}, None) for folder in sys.argv[1:])
triton.knobs.compilation.listener = lambda **about: print("found" if about["cache_hit"] else "compiled")
for side in (one, two):
    os.environ["TRITON_CACHE_DIR"] = str(side.scratch / "triton")
    source = ASTSource(twice, signature={"x": "*fp32", "y": "*fp32", "BLOCK": "constexpr"}, constexprs={(2,): 64})
    assert triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]
    one.hand_on(two)
    shutil.rmtree(one.scratch / "triton", ignore_errors=True)
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CompiledStore:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "compiled"))
    return CompiledStore(tmp_path / "compiled")


@pytest.fixture
def unhidden(private_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the function that hides the judge, because this judge runs in the test's own process."""
    monkeypatch.setattr("kernwright.judge.request.hide_judge", lambda: "not hidden: a test's process")


def side(folder: Path, store: CompiledStore, **files: str) -> CompiledFiles:
    folder.mkdir()
    for name, text in files.items():
        place = folder / name.replace("__", "/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return CompiledFiles(scratch=folder, facts={"side": "compile"}, store=store)


def test_a_list_of_paths_names_the_folder_it_lies_in(tmp_path: Path, store: CompiledStore) -> None:
    made = side(tmp_path / "one", store, triton__k="code")
    (tmp_path / "one/triton/group.json").write_text(f'{{"k": "{tmp_path}/one/triton/k"}}')
    twin = side(tmp_path / "two", store)
    assert made.hand_on(twin) == 2
    assert (tmp_path / "two/triton/group.json").read_text() == f'{{"k": "{tmp_path}/two/triton/k"}}'
    assert made.hand_on(twin) == 0, "there is nothing that it lacks"
    made.keep()
    later = side(tmp_path / "three", store)
    later.lay_out()
    assert later.found == 2
    assert (tmp_path / "three/triton/group.json").read_text() == f'{{"k": "{tmp_path}/three/triton/k"}}'


@pytest.mark.slow
def test_triton_finds_a_kernel_that_was_compiled_in_another_folder(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    (tmp_path / "program.py").write_text(COMPILES_TWICE)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_")}
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py", tmp_path / "one", tmp_path / "two"], env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["compiled", "found"], done.stderr[-2000:]


def test_only_finished_files_that_do_not_depend_on_measurement_are_kept(tmp_path: Path, store: CompiledStore) -> None:
    made = side(tmp_path / "one", store, triton__k="code", notes="x", inductor__locks__a="x", inductor__b="text")
    for name in ("triton/k.lock", "triton/tmp.pid_7", "triton/k.autotune.json", "inductor/b.best_config", "tritonlike"):
        (tmp_path / "one" / name).write_text("x")
    (tmp_path / "one/triton/link").symlink_to("/etc/passwd")
    (tmp_path / "one/bytecode").symlink_to("/etc")
    made.keep()
    assert store.take(made.key).keys() == {"triton/k", "inductor/b"}
    made.keep(chosen=True)
    chosen = {"triton/k.autotune.json", "inductor/b.best_config"}
    assert store.take(made.key).keys() == {"triton/k", "inductor/b"} | chosen


def test_choices_by_measured_time_are_passed_on_only_if_requested(
    tmp_path: Path, store: CompiledStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = side(tmp_path / "one", store, inductor__b="text")
    (tmp_path / "one/inductor/b.best_config").write_text("the second")
    assert made.hand_on(side(tmp_path / "two", store)) == 1
    assert not (tmp_path / "two/inductor/b.best_config").exists(), "a twin chooses for itself"
    made.keep(chosen=True)
    for name, chosen in (("three", True), ("four", False)):
        later = side(tmp_path / name, store)
        later.lay_out(chosen)
        assert (later.found, (tmp_path / name / "inductor/b.best_config").exists()) == (1 + chosen, chosen)
        with monkeypatch.context() as patch:
            patch.setattr(CompiledStore, "keep", lambda *_: pytest.fail("nothing is new"))
            later.keep(chosen)


def test_a_side_that_found_all_files_stores_nothing(
    tmp_path: Path, store: CompiledStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    side(tmp_path / "one", store, triton__k="code").keep()
    later = side(tmp_path / "two", store)
    later.lay_out()
    with monkeypatch.context() as patch:
        patch.setattr(CompiledStore, "keep", lambda *_: pytest.fail("nothing is new"))
        later.keep()
    (tmp_path / "two/triton/k").write_text("compiled once more")
    later.keep()
    assert store.take(later.key) == {"triton/k": b"compiled once more"}


def test_a_full_disk_leaves_no_incomplete_files(
    tmp_path: Path, store: CompiledStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    side(tmp_path / "one", store, triton__k="code", triton__l="code").keep()
    later = side(tmp_path / "two", store)
    write, written = Path.write_bytes, []

    def fill_up(path: Path, data: bytes) -> int:
        if written:
            raise OSError(28, "no space left")
        written.append(path)
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", fill_up)
    later.lay_out()
    assert written and later.found == 0
    assert not list((tmp_path / "two").iterdir())


def test_files_that_made_a_side_fail_are_not_passed_on(tmp_path: Path, store: CompiledStore) -> None:
    made = side(tmp_path / "one", store, triton__k="code", notes="x")
    made.keep()
    made.discard()
    assert store.take(made.key) == {}
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["notes"]
    (tmp_path / "one/triton").mkdir()
    (tmp_path / "one/triton/k").write_text("better")
    made.keep()
    assert store.take(made.key) == {"triton/k": b"better"}


def test_only_files_of_trusted_sides_are_kept(
    tmp_path: Path, store: CompiledStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    baseline = Baseline(name="compile", kind="compile", package="torch", version="2")
    contestants = [
        Contestant.of_baseline(baseline),
        Contestant("kernwright", "d", None, Shipped(())),
        Contestant("candidate", "d", None),
    ]
    found = [CompiledFiles.of(contestant, "tiny", tmp_path, {}, {}) for contestant in contestants]
    assert [compiled is not None for compiled in found] == [True, True, False]
    keys = {
        CompiledFiles.of(contestants[0], "tiny", tmp_path, {"driver": d}, {"torch": t}).key for d in "12" for t in "12"
    }  # type: ignore[union-attr]
    assert len(keys) == 4
    on_gpu = [CompiledFiles.of(contestant, "tiny", tmp_path, {"kind": "cuda"}, {}) for contestant in contestants]
    assert [compiled is not None for compiled in on_gpu] == [True, True, False]
    monkeypatch.setenv(VARIABLE, "off")
    assert CompiledFiles.of(contestants[0], "tiny", tmp_path, {}, {}) is None


@pytest.mark.usefixtures("unhidden")
@pytest.mark.parametrize("is_trusted", [True, False])
def test_choices_by_measured_time_are_kept_among_trusted_sides(
    is_trusted: bool,
    store: CompiledStore,
    tmp_path: Path,
    write_task: Callable[..., Path],
    write_candidate: Callable[..., Path],
    quiet: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[bool] = []
    monkeypatch.setattr(CompiledFiles, "lay_out", lambda self, chosen: found.append(chosen))
    monkeypatch.setattr(CompiledFiles, "keep", lambda self, chosen: found.append(chosen))
    request = JudgeRequest(
        task=str(write_task(tmp_path / "tiny")), rows="axpy_small", quick=True, ledger=tmp_path / "ledger",
        candidate=None if is_trusted else write_candidate(tmp_path / "candidate", CANDIDATE),
        against_itself=is_trusted,
    )  # fmt: skip
    judge(request, quiet)
    assert set(found) == {is_trusted} and len(found) > 2


@pytest.mark.slow
@pytest.mark.usefixtures("unhidden")
def test_a_second_judgement_compiles_nothing_and_its_candidate_sees_nothing(
    store: CompiledStore,
    tmp_path: Path,
    write_task: Callable[..., Path],
    write_candidate: Callable[..., Path],
    quiet: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = write_task(tmp_path / "tiny")
    (task / "baselines.py").write_text(ADAPTER)
    handed_on = []
    hand_on = CompiledFiles.hand_on
    monkeypatch.setattr(CompiledFiles, "hand_on", lambda made, twin: handed_on.append(hand_on(made, twin)))
    candidate = write_candidate(tmp_path / "candidate", CANDIDATE)
    request = JudgeRequest(
        task=str(task), candidate=candidate, baseline="compiler", rows="axpy_small", quick=True,
        ledger=tmp_path / "ledger",
    )  # fmt: skip
    first = judge(request, quiet)
    made = [path.read_bytes() for path in (store.folder / "files").iterdir()]
    assert len(made) == 1 and made[0].startswith(b"made by "), "the candidate's is its own"
    assert handed_on == [1], "the twin compiles nothing either"
    second = judge(request, quiet)
    assert [path.read_bytes() for path in (store.folder / "files").iterdir()] == made
    assert first.provenance["compiled"] == {}
    assert {name: found["files"] for name, found in second.provenance["compiled"].items()} == {
        "baseline": 1,
        "again": 1,
    }
    assert not {first.verdict, second.verdict} & {"failed", "tampered", "incorrect"}, second.reasons
