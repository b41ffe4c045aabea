"""A stand-in for the driver's library: NVML with the GPUs of a variable, so that the real bindings can be tested."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

CUDA = 13000
RESERVED_MIB = 600  # what the driver keeps for itself: the first version of the question counts it as used
SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef unsigned long long u64;
typedef struct { long used, busy, pid; } Gpu;
static int gpus(Gpu *out) {
  const char *text = getenv("FAKE_GPUS"); int n = 0, read = 0;
  while (text && sscanf(text, "%ld:%ld:%ld;%n", &out[n].used, &out[n].busy, &out[n].pid, &read) == 3) {
    n++; text += read;
  }
  return n;
}
static Gpu at(void *handle) { Gpu all[16]; gpus(all); return all[(long)handle - 1]; }
int nvmlInitWithFlags(unsigned f) { const char *e = getenv("FAKE_NVML_ERROR"); return e ? atoi(e) : 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 18 ? "Driver/library version mismatch" : "Not Supported"; }
int nvmlDeviceGetCount_v2(unsigned *count) { Gpu all[16]; *count = gpus(all); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **handle) { *handle = (void *)(long)(i + 1); return 0; }
int nvmlSystemGetDriverVersion(char *out, unsigned n) { strcpy(out, "580.65.06"); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { *out = CUDA; return 0; }
int nvmlDeviceGetUUID(void *h, char *out, unsigned n) { sprintf(out, "GPU-0000000%ld", (long)h); return 0; }
int nvmlDeviceGetName(void *h, char *out, unsigned n) { strcpy(out, "NVIDIA H200"); return 0; }
typedef struct { unsigned version; u64 total, reserved, free, used; } MemoryV2;
typedef struct { u64 total, free, used; } MemoryV1;
int nvmlDeviceGetMemoryInfo_v2(void *h, MemoryV2 *m) {
  if (getenv("FAKE_OLD")) return 3;
  m->total = 143771ull << 20; m->used = (u64)at(h).used << 20; m->reserved = RESERVED_MIBull << 20; return 0;
}
int nvmlDeviceGetMemoryInfo(void *h, MemoryV1 *m) {
  m->total = 143771ull << 20; m->used = (u64)(at(h).used + RESERVED_MIB) << 20; return 0;
}
int nvmlDeviceGetUtilizationRates(void *h, unsigned *u) {
  if (getenv("FAKE_OLD")) return 3;
  static int asked = 0;  /* FAKE_SETTLES: the load ends after this number of questions */
  const char *settles = getenv("FAKE_SETTLES");
  u[0] = settles && asked++ >= atoi(settles) ? 0 : at(h).busy; u[1] = 0; return 0;
}
int nvmlDeviceGetCudaComputeCapability(void *h, int *major, int *minor) { *major = 9; *minor = 0; return 0; }
typedef struct { unsigned pid; u64 used; unsigned gi, ci; } Process;
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *n, Process *p) {
  long pid = at(h).pid; unsigned room = *n; *n = pid != 0;
  if (!pid) return 0;
  if (room < 1 || !p) return 7;
  p[0].pid = pid; p[0].used = (u64)at(h).used << 20; return 0;
}
"""


def build_driver(folder: Path) -> Path:
    """Build the stand-in in a folder for LD_LIBRARY_PATH, and return the folder."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    source = folder / "nvml.c"
    source.write_text(SOURCE.replace("CUDA;", f"{CUDA};").replace("RESERVED_MIB", str(RESERVED_MIB)))
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", source], check=True)
    return folder


def fake_gpus(gpus: Iterable[tuple[int, int, int]]) -> str:
    """Return the value of FAKE_GPUS for GPUs with (MiB used, percent busy, process)."""
    return "".join(f"{used}:{busy}:{pid};" for used, busy, pid in gpus)
