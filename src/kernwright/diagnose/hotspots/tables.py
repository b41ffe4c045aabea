"""Tables of a diagnosis: steps, hotspots of each kind of step, and how to turn fast paths on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernwright.diagnose.catalogue.fast_path import FastPath
from kernwright.diagnose.hotspots.hotspot import Hotspot
from kernwright.diagnose.hotspots.trace_diagnosis import Diagnosis, StepGroupTime, counted
from kernwright.diagnose.profile.tables import NO_VALUE, TextTable, ms, percent

HEAD = ("#", "share", "time ms", "count", "category", "status", "saves ms", "hotspot")
NUMBERS = ("#", "share", "time ms", "count")


def tables_of_diagnosis(diagnosis: Diagnosis, least_share: float) -> Iterator[TextTable]:
    """Yield the tables that have rows.

    Args:
        least_share: hotspots below this share of the time are left out, and counted in one last row.
    """
    tables = [_steps(diagnosis.steps), *_hotspots(diagnosis, least_share), _paths(diagnosis, least_share)]
    yield from (table for table in tables if table.rows)


def _steps(steps: Sequence[StepGroupTime]) -> TextTable:
    rows = tuple(
        (
            step.name,
            str(step.count),
            ms(step.span_us / step.count),
            ms(step.busy_us / step.count),
            percent(step.idle_share),
        )
        for step in steps
        if step.name
    )
    head = ("step", "count", "time ms", "GPU busy ms", "GPU idle")
    return TextTable("Steps", head, rows, numbers=head[1:-1], about="time of one step; warm-up is left out")


def _hotspots(diagnosis: Diagnosis, least_share: float) -> Iterator[TextTable]:
    named = [step for step in diagnosis.steps if step.name]
    if len(named) < 2:
        yield _ranking("Hotspots", diagnosis, None, least_share)
        return
    for step in named:
        yield _ranking(f"Hotspots of {step.name}", diagnosis, step, least_share)


def _ranking(title: str, diagnosis: Diagnosis, step: StepGroupTime | None, least_share: float) -> TextTable:
    total = diagnosis.gpu_us if step is None else step.gpu_us
    extent = diagnosis.extent if step is None else f" in {counted(step.count)}"
    timed = [(h.us if step is None else h.step_us.get(step.name, 0.0), h) for h in diagnosis.hotspots]
    timed = sorted(((us, h) for us, h in timed if us > 0), key=lambda pair: -pair[0])
    listed = [(us, h) for us, h in timed if us >= least_share * total]
    rows = [_row(us, us / total, hotspot) for us, hotspot in listed]
    others = timed[len(listed) :]
    if others:
        us = sum(us for us, _ in others)
        rest = f"{len(others)} more below {percent(least_share)}"
        rows.append((NO_VALUE, percent(us / total), ms(us), *[NO_VALUE] * 4, rest))
    return TextTable(title, HEAD, tuple(rows), numbers=NUMBERS, about=f"{ms(total)} ms of GPU time{extent}")


def _row(us: float, share: float, hotspot: Hotspot) -> tuple[str, ...]:
    part = us / hotspot.us if hotspot.us else 0.0
    saving = hotspot.saving
    saves = NO_VALUE if saving is None else f"{part * saving.us / 1e3:.3f} ({_range(part, hotspot)})"
    where = f" at {hotspot.location}" if hotspot.location else ""
    return (
        str(hotspot.rank),
        percent(share),
        ms(us),
        str(hotspot.count),
        hotspot.category,
        hotspot.coverage.status,
        saves,
        f"{hotspot.name}: {hotspot.coverage.reason}{where}",
    )


def _range(part: float, hotspot: Hotspot) -> str:
    saving = hotspot.saving
    return "" if saving is None else f"{part * saving.low_us / 1e3:.3f} to {part * saving.high_us / 1e3:.3f}"


def _paths(diagnosis: Diagnosis, least_share: float) -> TextTable:
    """Return the fast paths that do not run yet, those with the largest predicted saving first."""
    wanted: dict[str, tuple[FastPath, list[Hotspot]]] = {}
    for hotspot in diagnosis.with_status("covered, off", "partly", "in flight"):
        if hotspot.share >= least_share:
            for path in {path.provider: path for path in reversed(hotspot.coverage.paths)}.values():
                wanted.setdefault(path.name, (path, []))[1].append(hotspot)
    savings = {name: [each.saving.us for each in hotspots if each.saving] for name, (_, hotspots) in wanted.items()}
    order = sorted(wanted, key=lambda name: -sum(savings[name]))
    rows = tuple(
        (
            name,
            ", ".join(str(each.rank) for each in wanted[name][1]),
            ms(sum(savings[name])) if savings[name] else NO_VALUE,
            _how(wanted[name][0]),
        )
        for name in order
    )
    return TextTable("Fast paths to turn on", ("fast path", "hotspots", "saves ms", "how"), rows, ("saves ms",))


def _how(path: FastPath) -> str:
    parts = [path.turn_on or f"{path.about} ({path.state})"]
    if path.requires.in_words:
        parts.append(f"needs {', '.join(path.requires.in_words)}")
    if path.open_work:
        parts.append("open work: " + "; ".join(f"{work} ({work.about})" for work in path.open_work))
    return ". ".join(parts)
