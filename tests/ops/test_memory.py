"""No kernel of the modulations reads or writes a byte beyond its tensors. All cases run again on a CPU under the
compiler's AddressSanitizer, which knows the exact size of every allocation of torch.

On a GPU, compute-sanitizer's memcheck looks for the same errors. Norms of unaligned rows are left out: on a GPU they
ask whether the bytes next to a row exist, and read them if so. An emulation cannot answer this.
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

CALLS = "chains_bits or gaps or replace_an_input"  # tests of test_modulation_emulated.py that run kernels
LIBC = ctypes.CDLL(None)
ADDR_NO_RANDOMIZE = 0x0040000  # constant of personality(2)
CONTROL = """
import ctypes
import torch
row = torch.zeros(99, dtype=torch.bfloat16)
assert row.data_ptr() % 16 == 0
for count in (6, 7):
    ctypes.CDLL(None).memcmp(ctypes.c_void_p(row.data_ptr() + 192), ctypes.c_void_p(row.data_ptr()), count)
    print("has read", count, flush=True)
"""


def preloaded() -> list[str]:
    """Return the libraries to preload: the sanitizer's, and that of C++, whose exceptions the sanitizer must
    intercept."""
    found = []
    for name in ("libasan.so", "libstdc++.so"):
        asked = [compiler() or "c++", f"-print-file-name={name}"]
        path = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
        if path.is_absolute() and path.read_bytes()[:4] == b"\x7fELF":  # some names lead to a linker script
            found.append(str(path))
    return found


def at_fixed_addresses() -> None:
    """Fix the addresses of a process and its children. With random addresses, kernels with a large address space may
    place memory where an older sanitizer has its own. If this is not permitted, it remains a matter of luck."""
    LIBC.personality(LIBC.personality(0xFFFFFFFF) | ADDR_NO_RANDOMIZE)


def ran(folder: Path, watched: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], env=watched, cwd=folder, capture_output=True, text=True, check=False, timeout=900,
        preexec_fn=at_fixed_addresses,
    )  # fmt: skip


@pytest.fixture(scope="module")
def watched() -> dict[str, str]:
    """Return the environment of a process under the sanitizer. Some options keep the sanitizer's memory apart from the
    program's, and torch's allocations visible to it."""
    if compiler() is None or len(libraries := preloaded()) < 2:
        pytest.skip("there is no compiler with an AddressSanitizer")
    options = {"LD_PRELOAD": " ".join(libraries), "ASAN_OPTIONS": "detect_leaks=0:log_path=report"}
    others = ("KERNWRIGHT_TEST_CLAIMS", "PYTEST_ADDOPTS")  # meant for the process that runs this test
    options |= {WATCHED: "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # imports take three times as long there
    return {name: value for name, value in os.environ.items() if name not in others} | options


@pytest.fixture(scope="module")
def report(watched: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the sanitizer's report of a process that reads one byte too many. Skip where it cannot find that."""
    folder = tmp_path_factory.mktemp("tried")
    done = ran(folder, watched, "-c", CONTROL)
    if not done.stdout.startswith("has read 6"):
        pytest.skip(f"no process can be watched here: {done.stderr[:300]}")
    if done.returncode == 0 and platform.machine() != "x86_64":
        pytest.skip("torch has its memory from where the sanitizer does not look")
    assert done.returncode and done.stdout.split("\n") == ["has read 6", ""]
    (found,) = folder.glob("report.*")
    return found.read_text(errors="replace")


def test_an_access_beyond_a_tensor_is_found(report: str) -> None:
    assert "heap-buffer-overflow" in report


@pytest.mark.usefixtures("report")
def test_modulations_stay_within_their_tensors(watched: dict[str, str], tmp_path: Path) -> None:
    tests = str(Path(__file__).with_name("test_modulation_emulated.py"))
    done = ran(tmp_path, watched, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", CALLS, tests)
    said = [own.read_text(errors="replace") for own in tmp_path.glob("report.*")]
    reports = "\n".join(text for text in said if "ERROR" in text)
    assert done.returncode == 0 and not reports, reports[:3000] or done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout
