"""No kernel of the modulations reads or writes a byte beside its tensors: all their cases once more on a CPU, under the
compiler's AddressSanitizer, which knows to the byte what torch was given.

It is what compute-sanitizer's memcheck looks for on a GPU. Norms are left out where rows start anywhere: on a GPU they
ask whether the bytes beside a row are there, and read them if so; here nobody could tell them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from emulation import WATCHED

from kernwright.runtime.target import compiler

HERE = Path(__file__).parent
CONTROL = """
import ctypes, sys
import torch
row = torch.zeros(99, dtype=torch.bfloat16)
assert row.data_ptr() % 16 == 0
print("reads", flush=True)
ctypes.CDLL(None).memcmp(ctypes.c_void_p(row.data_ptr() + 192), ctypes.c_void_p(row.data_ptr()), 6 + int(sys.argv[1]))
print("has read", flush=True)
"""


def preloaded() -> list[str]:
    """The sanitizer's library, and C++'s, whose exceptions it must have met before anybody throws one."""
    found = []
    for name in ("libasan.so", "libstdc++.so"):
        said = subprocess.run(
            [compiler() or "c++", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        )
        found += [said.stdout.strip()] if Path(said.stdout.strip()).is_absolute() else []
    return found


@pytest.fixture(scope="module")
def sanitizer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which a process is watched; some kernels give memory out where the sanitizer has its own."""
    if compiler() is None or len(libraries := preloaded()) < 2:
        pytest.skip("there is no compiler with an AddressSanitizer")
    found = os.environ | {WATCHED: "1", "LD_PRELOAD": " ".join(libraries), "ASAN_OPTIONS": "detect_leaks=0"}
    tried = ran(found, "-c", CONTROL, "0")
    if tried.returncode or tried.stdout.split("\n")[:2] != ["reads", "has read"]:
        pytest.skip(f"no process can be watched here: {tried.stderr[:300]}")
    return found


@pytest.fixture
def watched(sanitizer: dict[str, str], tmp_path: Path) -> dict[str, str]:
    return sanitizer | {"ASAN_OPTIONS": f"detect_leaks=0:log_path={tmp_path / 'report'}"}


def ran(watched: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], env=watched, cwd=HERE, capture_output=True, text=True, check=False)


def test_a_byte_beside_a_tensor_is_found(watched: dict[str, str], tmp_path: Path) -> None:
    beside = ran(watched, "-c", CONTROL, "1")
    assert beside.returncode and beside.stdout.split() == ["reads"]
    (report,) = tmp_path.glob("report.*")
    assert "heap-buffer-overflow" in report.read_text(errors="replace")


def test_modulations_keep_to_their_tensors(watched: dict[str, str], tmp_path: Path) -> None:
    done = ran(watched, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "test_modulation_emulated.py")
    reports = "\n".join(
        own.read_text(errors="replace") for own in tmp_path.glob("report.*") if "ERROR" in own.read_text()
    )
    assert done.returncode == 0 and not reports, reports[:3000] or done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout
