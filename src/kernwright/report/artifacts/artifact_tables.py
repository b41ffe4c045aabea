"""The tables of a campaign's artifacts, each with numbers from records only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernwright.campaign.record import Bottleneck, ModelCheck
from kernwright.campaign.version_verdicts import deciding_headline, deciding_result
from kernwright.judge.record.verdict import MetricResult, RowVerdict, Verdict

Table = tuple[tuple[str, ...], list[tuple[str, ...]]]  # head and rows
ROW_HEAD = (
    "row", "op", "verdict", "speedup", "low", "high", "baseline_us", "candidate_us", "share_of_copy", "bytes_min",
)  # fmt: skip


@dataclass(frozen=True)
class RowArtifact:
    """One judged row."""

    verdict: Verdict
    row: RowVerdict

    @property
    def result(self) -> MetricResult | None:
        return deciding_result(self.verdict, self.row)

    @property
    def share_of_copy(self) -> float | None:
        """Return the time of the fastest plain copy of the same bytes over the candidate's time.

        The candidate's time is that of its kernels alone if it was measured, else that of the deciding metric.
        """
        device = self.row.metrics.get("device")
        own = device if isinstance(device, MetricResult) else self.result
        return self.row.fastest_copy_us / own.candidate_us if own and self.row.fastest_copy_us else None

    def cells(self) -> tuple[str, ...]:
        own, share = self.result, self.share_of_copy
        figures = (
            ("",) * 5
            if own is None
            else (
                f"{own.ratio:.4f}", *(f"{end:.4f}" for end in own.interval), f"{own.baseline_us:.3f}",
                f"{own.candidate_us:.3f}",
            )
        )  # fmt: skip
        last = ("" if share is None else f"{share:.3f}", str(self.row.bytes_min))
        return (self.row.id, self.row.op, self.row.verdict, *figures, *last)


def microbenchmark(verdict: Verdict) -> Table:
    """Return all rows of a verdict. Rows that were checked and not timed have no figures."""
    return ROW_HEAD, [RowArtifact(verdict, row).cells() for row in verdict.rows]


def model_table(check: ModelCheck | None, part: str) -> Table | None:
    """Return a table with the times of one part of a model, `denoise` or `end_to_end`, before and after; None if the
    check did not measure it."""
    figures = check.figures if check is not None else {}
    if f"{part}_base_ms" not in figures:
        return None
    head = ("base", "new", "base_ms", "new_ms", "change", "low", "high")
    names = ("base", "new", f"{part}_base_ms", f"{part}_new_ms", f"{part}_change", f"{part}_low", f"{part}_high")
    return head, [tuple(_figure(figures.get(name, "")) for name in names)]


def _figure(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


def counters(before: Bottleneck | None, after: Bottleneck | None) -> Table | None:
    """Return the hardware counters before and after; None without any."""
    sides = [own.counters if own is not None else {} for own in (before, after)]
    names = sorted({*sides[0], *sides[1]})
    rows = [(name, *(_figure(side[name]) if name in side else "" for side in sides)) for name in names]
    return (("counter", "before", "after"), rows) if rows else None


def causes(verdict: Verdict) -> Iterator[str]:
    """Yield the measured causes of the difference: time, kernels and bytes per second, by row."""
    headline = deciding_headline(verdict)
    if headline is not None and headline.interval is not None:
        low, high = headline.interval
        yield (
            f"Over {headline.rows} rows, one call takes {1 / headline.geomean:.1%} of the baseline's time in "
            f"{verdict.metric} (speedup {headline.geomean:.3f}x, {low:.3f} to {high:.3f})."
        )
    for launched, rows in _launches(verdict.rows).items():
        before, after = launched
        some = f"{', '.join(rows[:3])}{' and others' if len(rows) > 3 else ''}"
        yield f"Kernels or operators of one call: {before} in the baseline, {after} in the candidate ({some})."
    for row in verdict.rows:
        result = deciding_result(verdict, row)
        if result is not None:
            rates = [row.bytes_min / time / 1e3 for time in (result.baseline_us, result.candidate_us)]
            yield (
                f"{row.id}: the {row.bytes_min} bytes that the call must move pass at {rates[0]:.3g} GB/s before and "
                f"{rates[1]:.3g} GB/s after."
            )


def _launches(rows: Sequence[RowVerdict]) -> dict[tuple[int, int], list[str]]:
    """Return the numbers of kernels of both sides, with the rows that have them."""
    found: dict[tuple[int, int], list[str]] = {}
    for row in rows:
        if row.kernels.get("baseline"):
            counts = [sum(kernel.count for kernel in row.kernels.get(side, ())) for side in ("baseline", "candidate")]
            found.setdefault((counts[0], counts[1]), []).append(row.id)
    return found
