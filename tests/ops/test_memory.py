"""No kernel of the modulations reads or writes a byte behind its tensors: all their cases once more on a CPU, under the
compiler's AddressSanitizer, which knows to the byte what torch was given.

It is what compute-sanitizer's memcheck looks for on a GPU. Norms are left out where rows start anywhere: on a GPU they
ask whether the bytes beside a row are there, and read them if so; here nobody could tell them.
"""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from emulation import WATCHED

from kernwright.runtime.target import compiler

LIBC = ctypes.CDLL(None)
ADDR_NO_RANDOMIZE = 0x0040000  # of personality(2)
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
        asked = [compiler() or "c++", f"-print-file-name={name}"]
        path = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
        if path.is_absolute() and path.read_bytes()[:4] == b"\x7fELF":  # some name a script for the linker so
            found.append(str(path))
    return found


def at_fixed_addresses() -> None:
    """For a process and all that it starts: what lies anywhere may lie where an older sanitizer has memory of its own,
    on kernels that choose from many places. Where nobody may ask for it, that stays luck."""
    LIBC.personality(LIBC.personality(0xFFFFFFFF) | ADDR_NO_RANDOMIZE)


def ran(folder: Path, watched: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], env=watched, cwd=folder, capture_output=True, text=True, check=False, timeout=900,
        preexec_fn=at_fixed_addresses,
    )  # fmt: skip


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which a process is watched. Some kernels give memory out where the sanitizer has its own, and
    torch need not have its memory from where the sanitizer looks."""
    if compiler() is None or len(libraries := preloaded()) < 2:
        pytest.skip("there is no compiler with an AddressSanitizer")
    options = {"LD_PRELOAD": " ".join(libraries), "ASAN_OPTIONS": "detect_leaks=0:log_path=report"}
    others = ("KERNWRIGHT_TEST_CLAIMS", "PYTEST_ADDOPTS")  # meant for whoever runs this test
    found = {name: value for name, value in os.environ.items() if name not in others} | {WATCHED: "1"} | options
    inside, beside = (ran(tmp_path_factory.mktemp("tried"), found, "-c", CONTROL, more) for more in "01")
    if inside.returncode or inside.stdout.split("\n")[:2] != ["reads", "has read"]:
        pytest.skip(f"no process can be watched here: {inside.stderr[:300]}")
    if beside.returncode == 0 and platform.machine() != "x86_64":
        pytest.skip("torch has its memory from where the sanitizer does not look")
    return found


def test_a_byte_beside_a_tensor_is_found(watched: dict[str, str], tmp_path: Path) -> None:
    beside = ran(tmp_path, watched, "-c", CONTROL, "1")
    assert beside.returncode and beside.stdout.split() == ["reads"]
    (report,) = tmp_path.glob("report.*")
    assert "heap-buffer-overflow" in report.read_text(errors="replace")


def test_modulations_keep_to_their_tensors(watched: dict[str, str], tmp_path: Path) -> None:
    tests = str(Path(__file__).with_name("test_modulation_emulated.py"))
    done = ran(tmp_path, watched, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", tests)
    said = [own.read_text(errors="replace") for own in tmp_path.glob("report.*")]
    reports = "\n".join(text for text in said if "ERROR" in text)
    assert done.returncode == 0 and not reports, reports[:3000] or done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout
