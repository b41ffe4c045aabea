"""Try `kernwright ncu` on a GPU: a row of a task, eager and ours side by side, and a program. It takes about 40 s.

    python benchmarks/ncu_capture.py FOLDER

The reports (.ncu-rep), their exports as CSV (raw and details) and the printed text are left in the folder. Each report
is read in all three ways that there are: Nsight Compute's Python module, and both pages. The exit status is 1 if a
command failed, the module and the page of raw metrics do not agree on the bounds, or our kernel is not named.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from kernwright.diagnose.ncu.bound.kernel_diagnosis import diagnose
from kernwright.diagnose.ncu.report.nsight import module_folder, needed_ncu
from kernwright.diagnose.ncu.report.report_file import read_report

ROW = "plain_s4096_d3072_row-bf16"
PROGRAM = (
    "import torch; x = torch.randn(4096, 3072, device='cuda', dtype=torch.bfloat16); y = torch.sin(x); z = y @ y.T"
)
CAPTURES = {
    "row": ["norm_scale_shift", "--rows", ROW, "--baseline", "eager", "--candidate", "kernwright"],
    "program": ["--kernel", "sin|gemm|nvjet|cutlass", "--count", "2", "--", sys.executable, "-c", PROGRAM],
}


def run(name: str, words: list[str], folder: Path) -> bool:
    """Run one capture, print what it says, and keep that as a file. Return whether it succeeded."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "kernwright", "ncu", "--label", name, *words]
    done = subprocess.run(
        command, env=os.environ | {"KERNWRIGHT_NCU": str(folder)}, stdout=subprocess.PIPE, text=True, check=False
    )
    print(f"\n== {name}: status {done.returncode}, {time.perf_counter() - begin:.1f} s\n{done.stdout}", flush=True)
    (folder / f"{name}.txt").write_text(done.stdout)
    return done.returncode == 0


def ways(report: Path, ncu: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the bounds of a report's kernels for each way to read it."""
    details = report.with_suffix(".details.csv")
    exported = subprocess.run(
        [str(ncu), "--import", str(report), "--csv", "--page", "details"], capture_output=True, text=True, check=True
    )
    details.write_text(exported.stdout)
    for way, path in (("report", report), ("raw", report.with_suffix(".csv")), ("details", details)):
        kernels = read_report(path)
        found = [diagnose(kernel, kernels) for kernel in kernels]
        yield way, [f"{each.kernel.short_name}: {each.main.name if each.main else None}" for each in found]


def main() -> int:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    ncu = needed_ncu("to capture")
    print(f"{ncu}, Python module in {module_folder(ncu)}")
    succeeded = [run(name, words, folder) for name, words in CAPTURES.items()]
    good = all(succeeded)
    for report in sorted(folder.rglob("*.ncu-rep")):
        found = dict(ways(report, ncu))
        print(report.name, json.dumps(found, indent=1))
        good &= found["report"] == found["raw"]
    ours = [text for text in (folder / "row.txt").read_text().splitlines() if "kernwright" in text]
    return int(not (good and ours))


if __name__ == "__main__":
    sys.exit(main())
