"""The check that a model became faster with the best version, or that the op's share of it is too small to measure."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any, Literal

from kernwright.campaign.campaign import Campaign
from kernwright.campaign.promotion.requirements import PromotionCase
from kernwright.campaign.record import ModelCheck
from kernwright.campaign.review.review import record_in_own_run
from kernwright.campaign.version_verdicts import deciding_headline
from kernwright.core.digest import folder_digest
from kernwright.core.errors import KernwrightError
from kernwright.diagnose.compare.comparison import WITHOUT_INTERVAL, ComparedMeasure, Comparison, compare_names, percent
from kernwright.tasks.candidate import CANDIDATE_FILE, load_candidate

_TRACE = re.compile(r"(?P<path>.+):(?P<rank>\d+)")
DEFAULT_NOISE = WITHOUT_INTERVAL  # relative difference between two single runs of a model that means nothing


def check_by_labels(campaign: Campaign, base: str, new: str, method: Literal["swap", "denoise"]) -> ModelCheck:
    """Record whether the denoising loop became faster from one label of perf dumps to another.

    With `swap`, the runs of the new label must have replaced a function by this version of the candidate.
    """
    version = PromotionCase.of(campaign).version
    comparison = compare_names([base, new])
    swapped = _swapped(comparison, version.digest) if method == "swap" else ""
    row = next((own for own in comparison.rows if own.measure.kind == "denoise"), None)
    found = row.differences[0] if row is not None else None
    if row is None or found is None:
        raise KernwrightError(
            f"{base} and {new} have no denoising time to compare",
            "name labels of `kernwright denoise` or `kernwright run --swap`",
        )
    interval = "" if found.low is None or found.high is None else f" ({percent(found.low)} to {percent(found.high)})"
    figures: dict[str, float | str] = {"base": base, "new": new, **({"swap": swapped} if swapped else {})}
    for own in comparison.rows:
        if own.measure.kind in ("denoise", "end to end"):
            figures |= _figures(own)
    improved = found.outcome == "better"
    return _recorded(
        campaign,
        method=method,
        improved=improved,
        candidate_digest=version.digest,
        summary=f"denoise {percent(found.change)}{interval} from {base} to {new}: {_words(row, improved)}",
        figures=figures,
    )


def _words(row: ComparedMeasure, improved: bool) -> str:
    found = row.differences[0]
    if improved:
        return "faster"
    if found is not None and found.method is None:
        return "no interval; repeat the runs"
    return f"{row.words(found)}, which is no improvement"


def _figures(row: ComparedMeasure) -> dict[str, float | str]:
    """Return the times of one part of the model before and after, and their difference, by name."""
    found, part = row.differences[0], row.measure.kind.replace(" ", "_")
    figures = {"base_ms": row.mean(0), "new_ms": row.mean(1)}
    if found is not None:
        figures |= {"change": found.change, "low": found.low, "high": found.high}
    return {f"{part}_{name}": value for name, value in figures.items() if value is not None}


def _swapped(comparison: Comparison, digest: str) -> str:
    """Return the swap of the new side's runs. Raise KernwrightError if they ran another candidate, or none."""
    base, new = ({_swap_of(dump.kernwright) for dump in side.dumps} for side in comparison.sides)
    if base != {""} or len(new) != 1 or "" in new:
        raise KernwrightError(
            f"the runs of the new label must have one swap and those of the base none, got {sorted(base | new)}",
            "run the model with `kernwright run --swap`, or use --denoise for runs without a swap",
        )
    (text,) = new
    folder = Path(text.rpartition("=")[2].partition("(")[0]).expanduser()
    if (folder / CANDIDATE_FILE).is_file():
        found = load_candidate(folder)
        if folder_digest(found.sources) != digest:
            raise KernwrightError(
                f"{folder} holds another version of the candidate than the best one",
                "repeat the runs with the best version in solution/",
            )
    return text


def _swap_of(provenance: Any) -> str:
    return str(provenance.settings.get("swap", "")) if provenance is not None else ""


def check_by_arithmetic(campaign: Campaign, trace: str, noise: float | None = None) -> ModelCheck:
    """Record what the op can save in a model, from its share of the GPU time in a trace and from the judged speedup.

    Args:
        trace: `FILE:RANK`, a trace and the rank of the op's hotspot in it, as `kernwright hotspots` lists them.
        noise: the smallest relative change of a model run that can be measured; by default 2 %.
    """
    from kernwright.diagnose.catalogue.catalogue import shipped_catalogue
    from kernwright.diagnose.hotspots.ranking import diagnose
    from kernwright.diagnose.recording import read_recording

    case = PromotionCase.of(campaign)
    named = _TRACE.fullmatch(trace)
    if named is None:
        raise KernwrightError(f"--arithmetic {trace}: names no hotspot", "write TRACE:RANK, such as trace.json.gz:3")
    path, rank = Path(named["path"]), int(named["rank"])
    hotspots = {own.rank: own for own in diagnose(read_recording(path), shipped_catalogue()).hotspots}
    if rank not in hotspots:
        raise KernwrightError(f"{path} has no hotspot {rank}", f"kernwright hotspots {path} --least 0 lists them")
    ratios = [own.geomean for verdict in case.runs.full_runs if (own := deciding_headline(verdict))]
    if not ratios:
        raise KernwrightError(
            "no full run with a headline is recorded", f"kernwright campaign promote {campaign.name} makes one"
        )
    limit = DEFAULT_NOISE if noise is None else noise
    share, ratio = hotspots[rank].share, min(ratios)
    saving = share * (1.0 - 1.0 / ratio)
    is_small = saving < limit
    judged = "too small to measure" if is_small else "large enough to measure: compare runs of the model"
    return _recorded(
        campaign,
        method="arithmetic",
        improved=is_small and saving > 0.0,
        candidate_digest=case.version.digest,
        summary=(
            f"{hotspots[rank].name} takes {share:.2%} of the GPU time in {path.name}; at {ratio:.2f}x the model saves "
            f"{saving:.2%}, with a noise of {limit:.2%}: {judged}"
        ),
        figures={
            "trace": str(path.resolve()),
            "trace_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "hotspot": hotspots[rank].name,
            "share": share,
            "ratio": ratio,
            "saving": saving,
            "noise": limit,
        },
    )


def _recorded(campaign: Campaign, **fields: Any) -> ModelCheck:
    check = ModelCheck(campaign=campaign.name, **fields)
    record_in_own_run(campaign, check)
    return check
