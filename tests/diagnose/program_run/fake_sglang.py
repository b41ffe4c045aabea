"""A stand-in for sglang: a program of that name on PATH that does what its arguments say, and writes a perf dump."""

from __future__ import annotations

import sys
from pathlib import Path

SOURCE = r"""#!%s
import gzip, json, os, subprocess, sys, time

def option(name):
    for place, word in enumerate(sys.argv):
        if word.startswith(name + "="):
            return word.partition("=")[2]
        if word == name:
            return sys.argv[place + 1]

with open(os.environ["SAW"], "w") as stream:
    json.dump({"arguments": sys.argv[1:], "environment": dict(os.environ)}, stream)
if os.environ.get("CHILDREN"):  # one in this process group, one in a session of its own that outlives its parent
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    subprocess.run(["sh", "-c", "setsid sleep 300 & echo"], stdout=subprocess.DEVNULL)
text = b"x" * int(os.environ.get("FILLER", "0")) + os.environ.get("SAYS", "Denoising 1/1\n").encode()
stream = sys.stderr.buffer if os.environ.get("TO_STDERR") else sys.stdout.buffer
for place in range(0, len(text), int(os.environ.get("PIECE", "1000000"))):
    stream.write(text[place : place + int(os.environ.get("PIECE", "1000000"))])
    stream.flush()
    time.sleep(float(os.environ.get("PAUSE", "0")))
dump = {"total_duration_ms": 1234.5, "steps": [{"name": "DenoisingStage", "duration_ms": 1000.0}],
        "memory_checkpoints": {"after_forward": {"peak_reserved_mb": 2048.0}}, "meta": {"model": "m"}}
if option("--perf-dump-path") and not os.environ.get("WITHOUT_DUMP"):
    os.makedirs(os.path.dirname(option("--perf-dump-path")) or ".", exist_ok=True)
    with open(option("--perf-dump-path"), "w") as stream:
        json.dump(dump, stream)
if "--profile" in sys.argv:
    os.makedirs("logs", exist_ok=True)
    for rank, names in enumerate(os.environ.get("KERNELS", "").split("/")):
        events = [{"ph": "X", "cat": "kernel", "name": name, "ts": 1, "dur": 1} for name in names.split()]
        events.append({"ph": "X", "cat": "cpu_op", "name": "aten::silu", "ts": 1, "dur": 1})
        with gzip.open(f"logs/id-global-rank{rank}.trace.json.gz", "wt") as stream:
            json.dump({"traceEvents": events}, stream)
time.sleep(float(os.environ.get("STAYS", "0")))
sys.exit(int(os.environ.get("STATUS", "0")))
"""


def install(folder: Path) -> Path:
    """Write the program into a folder for PATH."""
    program = folder / "sglang"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(SOURCE % sys.executable)
    program.chmod(0o755)
    return program
