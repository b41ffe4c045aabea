"""Conditions: differences between runs besides their times. Some forbid the comparison, others lead to a note."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kernwright.core.errors import KernwrightError
from kernwright.diagnose.compare.label_runs import LabelRuns
from kernwright.diagnose.perf_dump.dump import PerfDump

UNSYNCHRONISED = (
    "stages need not end with the work that they launched, so that a stage may hold the time of an earlier one; "
    "end to end is not affected"
)


def workload_of(dump: PerfDump) -> dict[str, Any]:
    """Return the facts that must be equal in all runs. A dump of sglang has few of them."""
    own = dump.kernwright
    facts = dict(own.comparable) if own is not None else {}
    if "steps" not in facts and dump.denoise_steps_ms:
        facts["steps"] = len(dump.denoise_steps_ms)
    if own is None and dump.meta.get("model"):
        facts["model"] = dump.meta["model"]
    return facts


def conflicts(sides: Sequence[LabelRuns]) -> list[str]:
    """Return the facts in which runs differ, with the values, for all runs of all sides.

    A fact that only some runs of Kernwright state is a difference. Dumps of sglang state fewer and other facts.
    """
    runs = [(side.name, dump) for side in sides for dump in side.dumps]
    facts = [(name, dump.kernwright is not None, workload_of(dump)) for name, dump in runs]
    own_keys = {key for _, is_own, held in facts if is_own for key in held}
    found = []
    for key in dict.fromkeys(key for _, _, held in facts for key in held):
        values: dict[str, list[str]] = {}
        for name, is_own, held in facts:
            if key in held or (is_own and key in own_keys):
                values.setdefault(_text(held.get(key)), []).append(name)
        if len(values) > 1:
            shown = "; ".join(f"{value} ({', '.join(dict.fromkeys(names))})" for value, names in values.items())
            found.append(f"{key}: {shown}")
    return found


def refuse_conflicts(found: Sequence[str]) -> None:
    if found:
        lines = "\n  ".join(found)
        raise KernwrightError(
            f"the runs computed different things:\n  {lines}",
            "compare runs of the same workload on the same GPU, or pass --different to compare them with a note",
        )


def notes_on(sides: Sequence[LabelRuns]) -> Iterator[str]:
    """Yield notes for the reader: settings that differ, and doubts about times."""
    yield from _settings(sides)
    for side in sides:
        if any(dump.kernwright is not None and not dump.kernwright.synchronised for dump in side.dumps):
            yield f"{side.name}: stages were not synchronised: {UNSYNCHRONISED}"
        elif any(dump.kernwright is None and dump.steps for dump in side.dumps):
            yield f"{side.name}: the dump does not say whether stages were synchronised: if not, {UNSYNCHRONISED}"
        if any(dump.kernwright is not None and dump.kernwright.gradients for dump in side.dumps):
            yield f"{side.name}: autograd recorded the run, which costs time and memory"
    stated = [any(dump.kernwright is None for dump in side.dumps) for side in sides]
    if any(stated) and not all(stated):
        yield "sglang's dumps do not state resolution, dtype and GPU: check that the runs computed the same"


def _settings(sides: Sequence[LabelRuns]) -> Iterator[str]:
    held = [_conditions(side) for side in sides]
    for key in dict.fromkeys(key for each in held for key in each):
        values = [each.get(key, ["-"]) for each in held]
        if any(value != values[0] for value in values):
            shown = ", ".join(f"{side.name} {' and '.join(value)}" for side, value in zip(sides, values, strict=True))
            yield f"{key}: {shown}"


def _conditions(side: LabelRuns) -> dict[str, list[str]]:
    """Return the settings and versions of a side's runs by name, each with its different values."""
    found: dict[str, list[str]] = {}
    for dump in side.dumps:
        own = dump.kernwright
        held: dict[str, Any] = {**own.settings, **own.libraries} if own is not None else {}
        if own is None or held:
            held["commit"] = dump.commit_hash
        if own is None:
            held["prompt"] = dump.meta.get("prompt")
        for key, value in held.items():
            if value is not None and (text := _text(value)) not in found.setdefault(key, []):
                found[key].append(text)
    return found


def _text(value: object) -> str:
    if value is None:
        return "not stated"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={_text(each)}" for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, value)) or "none"
    return str(value)
