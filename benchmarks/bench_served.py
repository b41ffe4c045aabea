"""Measure an edit loop: `kernwright judge --quick` on one row, with and without a server.

    python benchmarks/bench_served.py                       on this machine's processors
    python benchmarks/bench_served.py --device cuda [--bundle DIR]

The candidate is copied, and its copy is edited before every call, so that no cache knows it. Every call is a process of
its own, timed from start to exit. The table has the parts that the judge reports; `rest` is what they leave of the
whole: the start of the command, the import of torch (in this process or, once, in the server) and the set-up of the
judgement. The bar is 3 s on a GPU, without the build, for the second call of a served judge.

The script needs no network. Packages come from this Python, and from the bundle if there is one. It asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gpu_machine import ROOT, CannotRun, environment, search_path

TASK = "norm_scale_shift"
ROWS = {"cpu": "smoke_plain_s19_d3072_row-bf16", "cuda": "plain_s7904_d4096_row-bf16"}
CANDIDATES = {"cpu": "fused_cpp", "cuda": "fused_triton"}
PARTS = ("build", "workers", "first calls", "correctness", "timing", "census", "end of workers")
BUILDING = ("build", "first calls")  # a Triton candidate compiles in its first calls
START_S, CALL_S = 180.0, 300.0


def edit(candidate: Path, number: int) -> None:
    """Change the sources, as a person does between two calls."""
    for path in (*candidate.glob("*.py"), *candidate.glob("*.c*")):
        if path.suffix in (".py", ".cc", ".cu"):
            mark = "#" if path.suffix == ".py" else "//"
            path.write_text(f"{path.read_text()}{mark} edit {number}\n")


def call(words: list[str], folder: Path, settings: dict[str, str]) -> dict[str, float]:
    """Run one command and return the seconds of its parts."""
    out = folder / "verdict.json"
    out.unlink(missing_ok=True)
    started = time.monotonic()
    done = subprocess.run(
        [*words, "--json", str(out)], env=settings, capture_output=True, text=True, timeout=CALL_S, check=False
    )
    whole = time.monotonic() - started
    if not out.exists():
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    verdict: dict[str, Any] = json.loads(out.read_text())
    parts = {name: float(verdict["provenance"]["seconds"].get(name, 0.0)) for name in PARTS}
    built = sum(parts[name] for name in BUILDING)
    rest = whole - sum(parts.values())
    print(f"  {verdict['verdict']}: {verdict['next']['sentence']}", file=sys.stderr)
    return {"whole": whole, "without build": whole - built, **parts, "rest": rest, "served": bool(verdict["served"])}


def measure(arguments: argparse.Namespace, folder: Path, settings: dict[str, str]) -> dict[str, dict[str, float]]:
    candidate = folder / Path(arguments.candidate).name
    shutil.copytree(arguments.candidate, candidate)
    command = [sys.executable, "-m", "kernwright", "judge"]
    words = [
        *command, TASK, "--candidate", str(candidate), "--rows", arguments.row, "--device", arguments.device, "--quick",
        "--wait", "60",
    ]  # fmt: skip
    found: dict[str, dict[str, float]] = {}
    for number in range(arguments.unserved):
        edit(candidate, number)
        found[f"unserved, call {number + 1}"] = call([*words, "--no-served"], folder, settings)
    started = time.monotonic()
    with subprocess.Popen(
        [*command, "--serve", "--device", arguments.device], env=settings, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            if "serving" not in (line := server.stdout.readline()):
                raise SystemExit(f"the server did not start: {line}")
            print(f"  the server was ready after {time.monotonic() - started:.1f} s", file=sys.stderr)
            for number in range(arguments.served):
                edit(candidate, 100 + number)
                found[f"served, call {number + 1}"] = call(words, folder, settings)
        finally:
            server.terminate()
    return found


def show(found: dict[str, dict[str, float]]) -> None:
    columns = [name for name in next(iter(found.values())) if name != "served"]
    print(f"| call | {' | '.join(f'{name} s' for name in columns)} |")
    print(f"|---|{'---|' * len(columns)}")
    for name, seconds in found.items():
        mark = "" if seconds["served"] == name.startswith("served") else " (NOT served)"
        print(f"| {name}{mark} | {' | '.join(f'{seconds[column]:.2f}' for column in columns)} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--candidate", help="folder of a candidate for norm_scale_shift; default: an example")
    parser.add_argument("--row", help="id of a row")
    parser.add_argument("--unserved", type=int, default=2, help="calls without a server")
    parser.add_argument("--served", type=int, default=4, help="calls with one")
    parser.add_argument("--bundle", type=Path, default=ROOT / "bundle", help="packages that this Python lacks")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    kind = arguments.device.partition(":")[0]
    arguments.candidate = arguments.candidate or str(ROOT / "examples" / "candidates" / CANDIDATES[kind])
    arguments.row = arguments.row or ROWS[kind]
    try:
        settings = environment(search_path(arguments.bundle))
    except CannotRun as reason:
        print(f"bench_served: {reason}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="kernwright-served-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        own = {"KERNWRIGHT_SERVERS": str(folder / "servers"), "KERNWRIGHT_LEDGER": str(folder / "ledger")}
        found = measure(arguments, folder, settings | own)
    name = Path(arguments.candidate).name
    print(f"\n{TASK}, row {arguments.row}, {name} on {arguments.device}, {os.cpu_count()} processors\n")
    show(found)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
