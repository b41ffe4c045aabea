"""Tables: a profile as titled tables of text, for a terminal or a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernwright.diagnose.idle_time import Waited
from kernwright.diagnose.kernel_name import short_name
from kernwright.diagnose.profile.fusion import Fusion
from kernwright.diagnose.profile.gpu_time import GpuTime
from kernwright.diagnose.profile.kernel_row import KernelRow
from kernwright.diagnose.profile.overlap import Overlap
from kernwright.diagnose.profile.profile import Profile, StepRow

NO_VALUE = "-"
LEAST_SHARE = 0.01
MOST_WAITS = 8
MOST_KERNELS = 3  # kernels of a fusion that are listed


@dataclass(frozen=True)
class TextTable:
    """A table of text.

    Attributes:
        numbers: the columns that are aligned to the right.
        about: a line below the title, or "".
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[str, ...] = ()
    about: str = ""


def tables_of(profile: Profile, least_share: float = LEAST_SHARE) -> Iterator[TextTable]:
    """Yield the tables that have rows.

    Args:
        least_share: rows below this share of the time are left out, and counted in one last row.
    """
    tables = (
        _devices(profile.devices),
        _steps(profile.steps),
        _categories(profile),
        _kernels(profile, least_share),
        _waits(profile),
        _overlaps(profile.overlaps),
        _fusions(profile.fusions),
    )
    yield from (table for table in tables if table.rows)


def _devices(devices: Sequence[GpuTime]) -> TextTable:
    rows = tuple(
        (
            str(each.device),
            ms(each.kernel_us),
            ms(each.memcpy_us),
            ms(each.memset_us),
            ms(each.busy_us),
            ms(each.gap_us),
            percent(each.idle_share),
            percent(each.host_bound_share),
        )
        for each in devices
    )
    head = ("GPU", "kernels ms", "copies ms", "fills ms", "busy ms", "gaps ms", "idle", "host-bound")
    about = (
        "host-bound: the share of the time in which the GPU was idle because the host had not launched its next work"
    )
    return TextTable("time of each GPU", head, rows, head, about)


def _steps(steps: Sequence[StepRow]) -> TextTable:
    rows = tuple(
        (
            step.group,
            str(step.count),
            str(step.warmup),
            ms(step.us),
            ms(step.gpu_us),
            percent(step.idle_share),
            str(step.launches),
        )
        for step in steps
    )
    head = ("step", "count", "warm-up", "ms", "GPU ms", "idle", "launches")
    return TextTable("steps", head, rows, head[1:], "medians of a step, without warm-up")


def _categories(profile: Profile) -> TextTable:
    rows = tuple((each.category, ms(each.us), percent(each.share), str(each.launches)) for each in profile.categories)
    head = ("category", "ms", "share", "launches")
    return TextTable("categories", head, rows, head[1:])


def _kernels(profile: Profile, least_share: float) -> TextTable:
    shown = [row for row in profile.kernels if row.share >= least_share]
    rows = [_kernel(row) for row in shown]
    rest = profile.kernels[len(shown) :]
    if rest:
        us, launches = sum(row.us for row in rest), sum(row.launches for row in rest)
        name = f"{len(rest)} more, each below {percent(least_share)}"
        rows.append((name, NO_VALUE, ms(us), percent(us / (profile.us or 1.0)), str(launches), NO_VALUE, NO_VALUE))
    head = ("kernel", "category", "ms", "share", "launches", "cpu op", "python location")
    return TextTable("kernels", head, tuple(rows), head[2:5])


def _kernel(row: KernelRow) -> tuple[str, ...]:
    return (
        short_name(row.kernel),
        row.category,
        ms(row.us),
        percent(row.share),
        str(row.launches),
        row.op or NO_VALUE,
        _location(row),
    )


def _location(row: KernelRow) -> str:
    if row.location is None:
        return NO_VALUE
    share = f" ({percent(row.location_share)} of it)" if row.location_share < 0.995 else ""
    return f"{row.location}{share}{' (from the mapping trace)' if row.is_mapped else ''}"


def _waits(profile: Profile) -> TextTable:
    total = sum(each.span_us for each in profile.devices if each.waited_us)
    rows = tuple(
        (
            each.op,
            ms(each.waited_us),
            percent(each.waited_us / total if total else 0.0),
            str(each.calls) if each.longest else NO_VALUE,
            f"{each.typical_us:.0f}" if each.typical_us else NO_VALUE,
            _slow_calls(each),
        )
        for each in profile.waits[:MOST_WAITS]
    )
    head = ("host code", "GPU idle ms", "share", "calls", "median us", "slow calls")
    return TextTable("what the GPU waits for", head, rows, head[1:5])


def _slow_calls(waited: Waited) -> str:
    if not waited.outliers:
        return NO_VALUE
    longest = max(call.duration_us for call in waited.outliers)
    return f"{len(waited.outliers)} calls take up to {longest / 1000:.1f} ms"


def _overlaps(overlaps: Sequence[Overlap]) -> TextTable:
    rows = tuple(
        (
            each.priority,
            each.verdict,
            short_name(each.kernel),
            ms(each.exposed_us),
            each.dependency,
            each.advice,
            each.location or NO_VALUE,
            each.signal,
        )
        for each in overlaps
    )
    head = ("priority", "verdict", "kernel", "exposed ms", "dependency risk", "advice", "python scope", "signal")
    return TextTable("overlap opportunities", head, rows, head[3:4])


def _fusions(fusions: Sequence[Fusion]) -> TextTable:
    rows = tuple(
        (
            each.pattern,
            each.confidence,
            ms(each.us),
            percent(each.share),
            NO_VALUE if each.saves_us is None else ms(each.saves_us),
            _first_kernels(each),
            each.location or NO_VALUE,
            each.path or NO_VALUE,
            f"{each.rationale}; to turn it on: {each.turn_on}" if each.turn_on else each.rationale,
        )
        for each in fusions
    )
    head = (
        "pattern", "confidence", "ms", "share", "saves ms", "kernels", "python location", "fused path", "rationale",
    )  # fmt: skip
    return TextTable("fusion opportunities", head, rows, head[2:5])


def _first_kernels(fusion: Fusion) -> str:
    names = [short_name(kernel) for kernel in fusion.kernels]
    rest = [f"and {len(names) - MOST_KERNELS} more"] if len(names) > MOST_KERNELS else []
    return ", ".join([*names[:MOST_KERNELS], *rest])


def ms(us: float) -> str:
    """Return microseconds as milliseconds with three decimals."""
    return f"{us / 1000:.3f}"


def percent(share: float) -> str:
    """Return a share as a percentage with one decimal."""
    return f"{100 * share:.1f} %"
