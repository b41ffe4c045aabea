"""Output of a diagnosis: kernels and pairs of kernels as lines of text, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kernwright.core.errors import KernwrightError
from kernwright.diagnose.ncu.bound.flops import flops_of, roofline_of
from kernwright.diagnose.ncu.bound.kernel_diagnosis import KernelBound, KernelDiagnosis
from kernwright.diagnose.ncu.bound.resource import memory_traffic
from kernwright.diagnose.ncu.kernel_pair import KernelPair, ReportPair
from kernwright.diagnose.ncu.report.metric_names import DURATION
from kernwright.diagnose.ncu.report.profiled_kernel import Counter, ProfiledKernel
from kernwright.diagnose.ncu.report.quantity import in_words
from kernwright.wiki.wiki import the_wiki

TERA = 1e12
PAGES = 3  # pages of the wiki that a diagnosis names
UNKNOWN = "unknown"


def lines_of(diagnosis: KernelDiagnosis) -> Iterator[str]:
    """Yield a diagnosis as text."""
    yield heading(diagnosis)
    if diagnosis.main is None:
        yield f"  bound: {UNKNOWN}: the counters of this report do not show it"
    else:
        yield f"  bound: {diagnosis.main.name}: {diagnosis.main.what}"
        yield f"    {diagnosis.main.says}"
        yield from _listed("rests on", [str(counter) for counter in diagnosis.main.counters])
        yield from _listed("what usually helps", diagnosis.main.helps)
        if pages := wiki_pages(diagnosis):
            yield f"    read: kernwright wiki show {pages[0]}" + (
                f" (also {', '.join(pages[1:])})" if pages[1:] else ""
            )
    for bound in diagnosis.others:
        yield f"  next: {bound.name}: {bound.what} ({'; '.join(map(str, bound.counters[:3]))})"
    yield from (f"  note: {each}" for each in diagnosis.observations)
    yield f"  roofline: {roofline_words(diagnosis)}"
    yield from (f"  not used: {each}" for each in diagnosis.contradictions)
    yield from (f"  {UNKNOWN}: {each}" for each in diagnosis.unknown)


def wiki_pages(diagnosis: KernelDiagnosis) -> list[str]:
    """Return the names of the wiki pages that fit the main bound on this GPU. Without a wiki there are none."""
    if diagnosis.main is None:
        return []
    try:
        fits = the_wiki().fitting(diagnosis.main.name, diagnosis.kernel.capability, limit=PAGES)
    except KernwrightError:
        return []
    return [fit.page.name for fit in fits]


def heading(diagnosis: KernelDiagnosis) -> str:
    """Return the first line of a launch: number, name, shape, GPU, duration."""
    kernel = diagnosis.kernel
    parts = (kernel.shape, diagnosis.gpu.title if diagnosis.gpu else "GPU unknown", _duration(kernel))
    return f"[{kernel.number}] {kernel.short_name}: " + ", ".join(part for part in parts if part)


def _listed(title: str, items: list[str] | tuple[str, ...]) -> Iterator[str]:
    yield f"    {title}:"
    yield from (f"      - {item}" for item in items)


def _duration(kernel: ProfiledKernel) -> str:
    duration = kernel.value(DURATION)
    return in_words(duration, "s") if duration is not None else ""


def roofline_words(diagnosis: KernelDiagnosis) -> str:
    """Return the place on the roofline in words."""
    if diagnosis.gpu is None:
        return "the GPU is not known; name it with --gpu"
    place, traffic = roofline_of(diagnosis.kernel, diagnosis.gpu), memory_traffic(diagnosis.kernel, diagnosis.gpu)
    memory = f"{in_words(diagnosis.gpu.memory_ceiling, 'byte/s')} ({diagnosis.gpu.ceiling_source})"
    if place is None:
        if traffic is None:
            return f"no counter of memory traffic; the ceiling is {memory}"
        share = traffic.value / diagnosis.gpu.memory_ceiling
        return f"{in_words(traffic.value, 'byte/s')} of {memory}, {share:.0%}; FLOPs are not known"
    side = "memory side" if place.is_memory_side else "compute side"
    return (
        f"{place.intensity:.2f} FLOP/byte, {side} (ridge at {place.ridge:.1f}): {place.reached / TERA:.2f} of "
        f"{place.attainable / TERA:.2f} TFLOP/s, {place.share:.0%}; memory ceiling {memory}"
    )


def pair_lines(pair: KernelPair) -> Iterator[str]:
    """Yield a pair side by side."""
    names = [side.kernel.short_name for side in (pair.before, pair.after)]
    yield names[0] if names[0] == names[1] else f"{names[0]} -> {names[1]}"
    shapes = [side.kernel.shape for side in (pair.before, pair.after)]
    yield f"  {shapes[0] if shapes[0] == shapes[1] else ' -> '.join(shapes)} (matched by {pair.matched_by})"
    rows = [("", "before", "after", "after / before")]
    for figure in pair.figures:
        ratio = f"{figure.ratio:.2f}" if figure.ratio is not None else ""
        rows.append((figure.name, _shown(figure.before), _shown(figure.after), ratio))
    rows.append(("bound", _bound_name(pair.before), _bound_name(pair.after), ""))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        cells = [f"{row[0]:<{widths[0]}}", *(f"{row[column]:>{widths[column]}}" for column in (1, 2, 3))]
        yield f"  {'  '.join(cells)}".rstrip()


def _bound_name(diagnosis: KernelDiagnosis) -> str:
    return diagnosis.main.name if diagnosis.main else UNKNOWN


def _shown(counter: Counter | None) -> str:
    return in_words(counter.value, counter.unit) if counter else "-"


def report_pair_lines(pair: ReportPair) -> Iterator[str]:
    """Yield two reports: the pairs, the launches without a partner, and the sums."""
    for each in pair.pairs:
        yield from pair_lines(each)
        yield ""
    for words, found in (("only before", pair.only_before), ("only after", pair.only_after)):
        yield from (f"{words}: {heading(each)}, bound: {_bound_name(each)}" for each in found)
    before, after = pair.seconds
    if before and after:
        counts = [len(pair.pairs) + len(left) for left in (pair.only_before, pair.only_after)]
        yield (
            f"all kernels: {in_words(before, 's')} in {counts[0]} launch(es) before, {in_words(after, 's')} in "
            f"{counts[1]} after: {after / before:.2f}"
        )


def as_json(diagnosis: KernelDiagnosis) -> dict[str, Any]:
    """Return a diagnosis for programs. Counters are in base units."""
    kernel, flops = diagnosis.kernel, flops_of(diagnosis.kernel)
    place = roofline_of(kernel, diagnosis.gpu)
    return {
        "number": kernel.number,
        "kernel": kernel.name,
        "grid": list(kernel.grid),
        "block": list(kernel.block),
        "gpu": diagnosis.gpu.title if diagnosis.gpu else None,
        "duration_s": kernel.value(DURATION),
        "bound": _bound_json(diagnosis.main) if diagnosis.main else None,
        "wiki": wiki_pages(diagnosis),
        "next": [_bound_json(bound) for bound in diagnosis.others],
        "observations": list(diagnosis.observations),
        "roofline": None
        if place is None or flops is None
        else {
            "flop_per_byte": place.intensity,
            "ridge_flop_per_byte": place.ridge,
            "flop_per_s": place.reached,
            "attainable_flop_per_s": place.attainable,
            "share": place.share,
        },
        "cannot_be_told": list(diagnosis.unknown),
        "contradictions": list(diagnosis.contradictions),
    }


def _bound_json(bound: KernelBound) -> dict[str, Any]:
    return {
        "name": bound.name,
        "what": bound.what,
        "counters": [_counter_json(counter) for counter in bound.counters],
        "helps": list(bound.helps),
    }


def _counter_json(counter: Counter | None) -> dict[str, Any] | None:
    return None if counter is None else {"name": counter.shown, "value": counter.value, "unit": counter.unit}


def pair_json(pair: ReportPair) -> dict[str, Any]:
    """Return two matched reports for programs."""
    return {
        "pairs": [
            {
                "matched_by": each.matched_by,
                "before": as_json(each.before),
                "after": as_json(each.after),
                "figures": [
                    {
                        "name": figure.name,
                        "before": _counter_json(figure.before),
                        "after": _counter_json(figure.after),
                        "ratio": figure.ratio,
                    }
                    for figure in each.figures
                ],
            }
            for each in pair.pairs
        ],
        "seconds": list(pair.seconds),
        "only_before": [as_json(each) for each in pair.only_before],
        "only_after": [as_json(each) for each in pair.only_after],
    }
