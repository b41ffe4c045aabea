"""Card: prompt.md in the agent's folder: the goal, the rules, all figures, and what was tried."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from kernwright.campaign.campaign import Campaign
from kernwright.campaign.files.iterations_file import directions_text, iteration_lines
from kernwright.campaign.files.upstream_work import upstream_lines
from kernwright.campaign.history import History
from kernwright.campaign.record import Bottleneck, RowFigure
from kernwright.campaign.settings import CampaignSettings
from kernwright.campaign.state.standing import standing_of, target_of
from kernwright.campaign.tuning.limits import gpu_architecture
from kernwright.core.errors import KernwrightError
from kernwright.core.parsed_op import ParsedOp
from kernwright.tasks.task import Task
from kernwright.tasks.workload import Workload
from kernwright.wiki.wiki import the_wiki

FILE = "prompt.md"
IDEA_FILE = "idea.json"
MOST_SHOWN = 5  # past iterations with all facts; ITERATIONS.md has all of them
CONTRACTS = {
    "exact": "bit-equal to the reference on this device (torch.equal)",
    "close": "no less accurate than the reference: at most 1.5 times its maximum and RMS error against a float64 "
    "oracle, and within the task's tolerance",
}


def card_text(
    campaign: Campaign, history: History, task: Task, rows: tuple[Workload, ...], avoid: tuple[str, ...]
) -> str:
    """Return the text of the card.

    Args:
        avoid: directions that the stop rules refuse now.
    """
    own = campaign.settings
    sections = [
        _goal(own, history, task),
        _rules(own),
        _judging(campaign),
        _idea(avoid),
        _figures(own, history, rows),
        _past(history),
        _upstream(own),
        _wiki(own, history),
    ]
    return "\n".join(line for section in sections for line in section) + "\n"


def _goal(own: CampaignSettings, history: History, task: Task) -> Iterator[str]:
    schema = task.schemas[own.op]
    signature = schema.signature if isinstance(schema, ParsedOp) else own.op
    best, target = standing_of(history), target_of(history)
    yield f"# Make {own.op} faster"
    yield ""
    yield f"Edit the candidate in `solution/` so that it computes `{own.op}` faster than the baseline `{own.baseline}`"
    yield f"on the rows of task `{task.name}` ({task.file.title})."
    yield f"The device is {own.device}; the metric is {own.metric}."
    yield ""
    yield "```python"
    yield signature
    yield "```"
    yield ""
    yield f"- Contract: `{schema.contract}`: {CONTRACTS[schema.contract]}."
    yield "- `reference.py` has the definition. `baseline.md` has the baseline's figures, `hints.md` general advice."
    if history.best:
        standing = f"iteration {best.iteration}, {best.ratio:.3f}x over the baseline"
        yield f"- Best version so far: {standing}. `solution/` holds it."
    else:
        yield "- No version is better than the starting version yet. `solution/` holds the starting version."
    if target is not None:
        yield f"- Goal: {target:.3f}x over the baseline, which is the bandwidth limit of these rows."


def _rules(own: CampaignSettings) -> Iterator[str]:
    yield ""
    yield "## Rules"
    yield ""
    yield "- Try one idea: state a hypothesis, edit `solution/`, write `idea.json`, and stop."
    yield "- Change files in this folder only. If you change the task, the judge, the ledger or the history of the"
    yield "  repository, the change is undone and the iteration is refused."
    yield "- The verdict comes from a full run of the judge after you have stopped. Your own measurements do not count."
    yield "- The result must be correct for every input, also at other sizes, offsets and extreme values. No cached"
    yield "  results, no special case for the judge's inputs, no call of the baseline."
    yield f'- `solution/candidate.toml` has `op = "{own.op}"`. Language: {own.language}.'
    yield "- Files in `context/` are your notes. They stay from iteration to iteration."


def _judging(campaign: Campaign) -> Iterator[str]:
    own = campaign.settings
    words = ["kernwright", "judge", own.task, "--candidate", "solution", "--quick"]
    options = {"--baseline": own.baseline, "--device": own.device, "--rows": own.rows, "--metric": own.metric}
    defaults = {"--baseline": "eager", "--device": "cpu", "--rows": None, "--metric": None}
    for option, value in options.items():
        if value is not None and value != defaults[option]:
            words += [option, value]
    yield ""
    yield "## A quick check"
    yield ""
    yield "Run this in this folder. It checks the results and measures rough times; `--rows ROW` chooses one row."
    yield "It is not evidence."
    yield ""
    yield "```"
    yield shlex.join(words)
    yield "```"


def _idea(avoid: tuple[str, ...]) -> Iterator[str]:
    yield ""
    yield "## idea.json"
    yield ""
    yield "Write it next to this file before you stop:"
    yield ""
    yield "```json"
    yield '{"hypothesis": "16-byte loads halve the number of memory instructions, which bound the kernel",'
    yield ' "direction": "vector-width", "predicted_ratio": 1.05, "note": "what you did, and what you saw"}'
    yield "```"
    yield ""
    yield "- `hypothesis`: why the edit should help. `direction`: a short tag of its kind."
    yield "- `predicted_ratio`: expected speedup over the best version; 1.05 is 5 % faster. `note` is optional."
    if avoid:
        yield f"- Refused directions: {', '.join(avoid)}. The last three ideas had them and brought no improvement."
        yield "  Another idea in one of them is not judged."


def _figures(own: CampaignSettings, history: History, rows: tuple[Workload, ...]) -> Iterator[str]:
    yield ""
    yield "## Rows"
    yield ""
    baseline = {row.id: row for row in history.baseline.rows} if history.baseline else {}
    best = {row.id: row for row in history.best.ended.rows} if history.best and history.best.ended else {}
    yield f"Times in us, {own.metric}. The limit is the time of a copy of the same bytes, or the least time for them."
    yield ""
    yield "| row | inputs | scalars | MB | baseline | limit | best version |"
    yield "|---|---|---|---:|---:|---:|---:|"
    for row in rows:
        inputs = ", ".join(f"{name} {_tensor(row, name)}" for name in row.inputs)
        scalars = ", ".join(f"{name}={value}" for name, value in row.scalars.items())
        known, own_best = baseline.get(row.id), best.get(row.id)
        cells = [
            row.id,
            inputs,
            scalars,
            f"{row.bytes_min / 1e6:.2f}",
            _us(known.baseline_us if known else None),
            _limit(known),
        ]
        yield "| " + " | ".join([*cells, _us(own_best.candidate_us if own_best else None)]) + " |"
    bottleneck = current_bottleneck(history)
    if bottleneck:
        yield ""
        yield f"Bottleneck: {bottleneck_text(bottleneck)}"


def _tensor(row: Workload, name: str) -> str:
    tensor = row.concrete_inputs()[name]
    return f"{list(tensor.shape)} {tensor.dtype}"


def _limit(row: RowFigure | None) -> str:
    return _us((row.copy_us or row.least_us) if row else None)


def _us(time: float | None) -> str:
    return f"{time:.3f}" if time is not None else ""


def current_bottleneck(history: History) -> Bottleneck | None:
    """Return the latest bottleneck: of the last profile, else of the baseline."""
    if history.profiles:
        return history.profiles[-1].bottleneck
    return history.baseline.bottleneck if history.baseline else None


def bottleneck_text(bottleneck: Bottleneck) -> str:
    """Return a bottleneck in one sentence."""
    if bottleneck.unavailable:
        more = f" {bottleneck.summary}" if bottleneck.summary else ""
        return f"not known: {bottleneck.unavailable}.{more}"
    return f"{bottleneck.bound or 'unknown'} on row {bottleneck.row}: {bottleneck.summary}"


def _past(history: History) -> Iterator[str]:
    if not history.iterations:
        return
    yield ""
    yield "## What was tried"
    yield ""
    yield f"`ITERATIONS.md` has all iterations. Directions: {directions_text(history)}."
    for each in history.iterations[: -MOST_SHOWN - 1 : -1]:
        yield ""
        yield f"Iteration {each.number}:"
        yield ""
        yield from (f"- {line}" for line in iteration_lines(each))


def _upstream(own: CampaignSettings) -> Iterator[str]:
    lines = list(upstream_lines(own.op))
    if lines:
        yield ""
        yield "## Overlapping work of other projects"
        yield ""
        yield from lines


def _wiki(own: CampaignSettings, history: History) -> Iterator[str]:
    """Yield the pages of the wiki that fit the op, its bottleneck, the device and the language."""
    bottleneck = current_bottleneck(history)
    arch = "cpu" if own.device == "cpu" else gpu_architecture(own.device)
    try:
        pages = the_wiki().fitting(bottleneck.bound if bottleneck else None, arch, own.op, language=own.language)
    except KernwrightError:  # an installation without a wiki, or a bound that it does not know
        return
    if pages:
        yield ""
        yield "## Pages of the wiki"
        yield ""
        yield "`kernwright wiki show PAGE` shows one; `kernwright wiki search WORDS` finds others."
        yield ""
        yield from (f"- {page.line}" for page in pages)
