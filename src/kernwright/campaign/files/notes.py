"""Notes in the agent's folder: baseline.md with the baseline's figures, and hints.md with general advice."""

from __future__ import annotations

from collections.abc import Iterator

from kernwright.campaign.files.card import bottleneck_text
from kernwright.campaign.history import History
from kernwright.campaign.settings import CampaignSettings
from kernwright.campaign.state.standing import bandwidth_limit

BASELINE_FILE = "baseline.md"
HINTS_FILE = "hints.md"

HINTS = {
    "cuda": (
        "Move each byte once: 16-byte loads and stores, neighbouring threads at neighbouring addresses.",
        "Hold a token in registers if it fits; otherwise read it twice rather than spill.",
        "Fill the GPU: with few rows, several blocks per row; with many, several rows per block.",
        "A kernel of a few microseconds is bound by its launch: fewer kernels, less work on the host.",
    ),
    "triton": (
        "Tune the block size, num_warps and num_stages before anything else.",
        "Mask only where the size is no multiple of the block, and keep one load per element.",
        "Round where the reference rounds; `tl.float32` is the type of the sums.",
    ),
    "cutedsl": ("Check the vector width of each copy, and predicate only the last tile.",),
    "cpp": (
        "Let the compiler vectorize the inner loop: contiguous access, no branches, no aliasing.",
        "Read each element once. Convert bf16 in the same loop.",
        "Only one thread counts. Avoid allocations inside the call.",
    ),
    "python": (
        "Fewer operators: each reads and writes the whole tensor. `out=` and in-place operators save an allocation.",
        "If Python costs more than the memory traffic, write the candidate in C++.",
    ),
}


def baseline_text(history: History) -> str:
    """Return the text of baseline.md."""
    return "\n".join(_baseline(history)) + "\n"


def _baseline(history: History) -> Iterator[str]:
    yield "# Baseline"
    yield ""
    if history.started is None or history.baseline is None:
        yield "Not measured yet: `kernwright campaign step` or `run` measures it before the first iteration."
        return
    own, measured = history.started.settings, history.baseline
    yield f"`{own.baseline}` on {own.device}, {own.metric} times, from run {measured.verdict_run} of the judge:"
    yield ""
    yield "| row | us per call | copy of the same bytes | least time |"
    yield "|---|---:|---:|---:|"
    for row in measured.rows:
        cells = [f"{time:.3f}" if time is not None else "" for time in (row.baseline_us, row.copy_us, row.least_us)]
        yield "| " + " | ".join([row.id, *cells]) + " |"
    limit = bandwidth_limit(measured)
    yield ""
    yield f"Bandwidth limit: {f'{limit:.3f}x over the baseline' if limit else 'not known'}."
    yield f"Bottleneck: {bottleneck_text(measured.bottleneck)}"
    if measured.bottleneck.counters:
        yield ""
        yield "| counter | value |"
        yield "|---|---:|"
        yield from (f"| {name} | {value:g} |" for name, value in measured.bottleneck.counters.items())


def hints_text(own: CampaignSettings) -> str:
    """Return the text of hints.md."""
    general = (
        "Measure before you guess: the rows with the longest times weigh as much as the short ones in the mean.",
        "A change below the noise band is no improvement. Look for the largest remaining cost first.",
    )
    lines = [f"# Hints for {own.language}", "", *(f"- {hint}" for hint in (*general, *HINTS[own.language]))]
    return "\n".join(lines) + "\n"
