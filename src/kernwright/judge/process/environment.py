"""Environment variables of workers and of the zygote that forks them."""

from __future__ import annotations

import os
from pathlib import Path

from kernwright.judge.system.sandbox import import_folders

INHERITED = ("PATH", "LANG", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")


def zygote_environment(threads: int) -> dict[str, str]:
    """Return the zygote's environment: the variables that libraries read when they are loaded."""
    kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return kept | {
        "PYTHONPATH": os.pathsep.join(import_folders()),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        # Freed outputs stay in the process, as in a GPU's caching allocator. Otherwise the time that a worker was
        # stopped would decide whether its next block pays for page faults. (torch uses mimalloc on some CPUs.)
        "MIMALLOC_PURGE_DELAY": "-1",
        "MALLOC_TRIM_THRESHOLD_": str(4 * 2**30),
        "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
        "MALLOC_ARENA_MAX": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "KINETO_LOG_LEVEL": "99",  # the profiler of a census would write lines between those of the side
    }


def worker_environment(scratch: Path, threads: int) -> dict[str, str]:
    """Return a worker's environment: nothing of the judge's, and all caches in the scratch folder."""
    return zygote_environment(threads) | {
        "PYTHONNOUSERSITE": "1",  # also for Python processes that a worker starts
        "USER": "worker",  # the worker's user is not in the password file, but libraries ask for a name
        "LOGNAME": "worker",
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
        "TRITON_CACHE_DIR": str(scratch / "triton"),
        "TVM_FFI_CACHE_DIR": str(scratch / "tvm-ffi"),
    }
