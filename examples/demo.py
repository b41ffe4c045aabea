"""The demo: four judgements on real rows of norm_scale_shift, a table, a ledger and a page.

1. a fused C++ kernel against the eager chain: it is faster
2. the same kernel against torch.compile
3. a kernel with an uncentred variance: right on easy inputs, wrong on rows with a large offset
4. a candidate that returns cached results when it seems to be timed
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # checking threads must not spin on a worker's processor

from kernwright.cli.console import ProgressBar, out
from kernwright.core.errors import KernwrightError
from kernwright.judge.record.verdict import Verdict
from kernwright.judge.request import JudgeRequest, judge
from kernwright.ledger.verify import verify
from kernwright.report.verdict_page import write_page
from kernwright.report.verdict_table import verdict_lines, verdict_table, verdict_title

CANDIDATES = Path(__file__).resolve().parent / "candidates"
FOLDER = Path(".kernwright/demo")
ROWS = "smoke_plain_s1*"  # four rows at their production size: 19 to 195 text tokens of Qwen-Image and others


@dataclass(frozen=True)
class Act:
    """One judgement of the demo, and how it must end."""

    candidate: str
    baseline: str
    rows: str
    endings: tuple[str, ...]


ACTS = (
    Act("fused_cpp", "eager", ROWS, ("faster",)),
    Act("fused_cpp", "compile", "smoke_plain_s1[09]*_d*", ("faster", "same", "slower", "inconclusive")),
    Act("subtly_wrong_cpp", "eager", ROWS, ("incorrect",)),
    Act("cheat_cached", "eager", ROWS, ("incorrect", "tampered")),
)


def main() -> int:
    started = time.monotonic()
    verdicts: list[Verdict] = []
    surprises = 0
    for act in ACTS:
        request = JudgeRequest(
            task="norm_scale_shift",
            candidate=CANDIDATES / act.candidate,
            baseline=act.baseline,
            rows=act.rows,
            ledger=FOLDER / "ledger",
            wait_s=600.0,
        )
        out.rule(f"{act.candidate} against {act.baseline}")
        with ProgressBar() as bar:
            verdict = judge(request, bar)
        out.print(verdict_table(verdict) or verdict_title(verdict))
        for line in verdict_lines(verdict):
            out.print(line)
        verdicts.append(verdict)
        if verdict.interrupted:
            return 2
        if verdict.verdict not in act.endings:
            surprises += 1
            out.print(f"expected {' or '.join(act.endings)}", style="bold red")
            if verdict.verdict == "inconclusive":
                out.print("the times were too noisy: run the demo again when no other program is busy")
    page = FOLDER / "report.html"
    write_page(verdicts, page, "Kernwright demo: norm, scale and shift on a CPU")
    problems = verify(FOLDER / "ledger")
    out.rule("done")
    out.print(f"page    {page.resolve()}")
    out.print(f"ledger  {(FOLDER / 'ledger').resolve()} ({'sound' if not problems else f'{len(problems)} problems'})")
    out.print(f"time    {time.monotonic() - started:.0f} s")
    return 1 if surprises or problems else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KernwrightError as error:
        print(f"kernwright: {error}", file=sys.stderr)
        sys.exit(2)
