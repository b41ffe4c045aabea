"""Tables of GPUs for the documentation: `docs/gpus.md`, and the block in the wiki page of each architecture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from kernwright.core.errors import BadFile
from kernwright.diagnose.roofline.gpu_model import (
    FigureSource,
    GpuModel,
    SmLimits,
    common_limits,
    figure_sources,
    gpu_models,
    sm_limits,
)

PAGE = "gpus.md"
BEGIN, END = "<!-- gpu-table: begin -->", "<!-- gpu-table: end -->"
KINDS = {"datasheet": "data sheet", "reported": "driver", "measured": "measured", "assumed": "assumed"}
ADA_AND_AMPERE = "8.6"  # in the table for occupancy only: no page, since no model of it is in the table
_TITLE = """# GPUs

Generated from `src/kernwright/diagnose/roofline/gpus.toml` by `kernwright wiki check --update`; no number is typed.

Kernwright computes bandwidth limits, occupancy and rooflines from these figures. Each figure has a kind: *data sheet*
(published by the vendor), *driver* (reported by the driver of a GPU), *measured*, or *assumed*. Measurements were made
on an H200 only. A *copy* is a copy within the memory of the GPU, in bytes read plus bytes written. If no copy was
measured, its rate is assumed to be {share:.0%} of the bandwidth.
"""


def gpu_files(docs: Path) -> dict[Path, str]:
    """Return the text of every page below `docs` that has a table of GPUs, by path.

    Raises:
        BadFile: the page of an architecture is missing, or has no place for its table.
    """
    files = {docs / PAGE: gpus_page()}
    for limits in sm_limits().values():
        if limits.capability == ADA_AND_AMPERE:
            continue
        path = docs / "wiki" / f"gpu-{limits.arch.replace('_', '-')}.md"
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if text.count(BEGIN) != 1 or END not in text.partition(BEGIN)[2]:
            raise BadFile(
                path, "", "has no place for the table of GPUs", f"write {BEGIN} and {END} on lines of their own"
            )
        block = f"{BEGIN}\n{architecture_table(limits)}\n{END}"
        before, _, rest = text.partition(BEGIN)
        files[path] = before + block + rest.partition(END)[2]
    return files


def gpus_page() -> str:
    """Return the page with all GPUs, all capabilities and all sources."""
    parts = [_TITLE.format(share=common_limits().copy_share)]
    parts += ["## Models\n", _table(_MODEL_COLUMNS, (_model_row(model) for model in gpu_models()))]
    parts += [
        "## Streaming multiprocessors\n",
        _table(_LIMIT_COLUMNS, (_limit_row(each) for each in sm_limits().values())),
    ]
    parts += ["## Common limits\n", _table(("figure", "value", "source"), _common_rows())]
    parts += ["## Sources of the models\n", _table(("model", "figure", "kind", "source"), _model_sources())]
    parts += ["## Sources\n", _table(("source", "kind", "document", "version", "date"), _source_rows())]
    return "\n".join(parts)


def architecture_table(limits: SmLimits) -> str:
    """Return the table of one architecture: its SM, then its models."""
    rows = [(name, value, _kind(limits.sources[key])) for name, value, key in _sm_figures(limits)]
    common = common_limits()
    rows.insert(
        2, ("registers per SM; per thread, at most", f"{common.registers:,}; {common.registers_thread}", "data sheet")
    )
    models = [model for model in gpu_models() if model.limits is limits]
    return "\n".join(
        [
            f"One SM of {limits.arch} ({limits.generation}):\n",
            _table(("figure", "value", "kind"), rows),
            "The GPUs of the table:\n",
            _table(("figure", *(model.title for model in models)), _by_figure(models)),
            f"[{PAGE}](../{PAGE}) has the sources, with their versions and dates.",
        ]
    )


_MODEL_COLUMNS = ("model", "architecture", "SMs", "clock, MHz", "memory", "bandwidth, GB/s", "copy, GB/s", "L2, KiB")
_LIMIT_COLUMNS = (
    "architecture", "generation", "resident warps", "resident blocks", "shared memory, KiB",
    "shared memory per block, KiB", "L1 and shared memory, KiB", "fp32 lanes",
)  # fmt: skip


def _model_row(model: GpuModel) -> tuple[str, ...]:
    copy = f"{model.copy_bandwidth / 1e9:.0f}" if model.copy_bandwidth else "not measured"
    numbers = (f"{model.sms}", f"{model.clock_hz / 1e6:.0f}", model.memory, f"{model.bandwidth / 1e9:.0f}")
    return (model.title, model.limits.arch, *numbers, copy, f"{model.l2_bytes // 1024}")


def _limit_row(limits: SmLimits) -> tuple[str, ...]:
    sizes = (limits.shared_memory, limits.shared_memory_block, limits.l1)
    kib = (f"{size // 1024}" for size in sizes)
    return (limits.arch, limits.generation, f"{limits.warps}", f"{limits.blocks}", *kib, f"{limits.fp32_lanes}")


def _common_rows() -> Iterator[tuple[str, ...]]:
    common = common_limits()
    named = (
        ("threads per warp", f"{common.warp_threads}", "warp_threads"),
        ("schedulers per SM", f"{common.schedulers}", "schedulers"),
        ("registers per SM", f"{common.registers}", "registers"),
        ("registers per thread, at most", f"{common.registers_thread}", "registers_thread"),
        ("registers of a warp are allocated in units of", f"{common.register_unit}", "register_unit"),
        ("threads per block, at most", f"{common.block_threads}", "block_threads"),
        ("share of the bandwidth that a copy is assumed to reach", f"{common.copy_share:.0%}", "copy_share"),
        ("one call of an op in C++ on the host of an H200, us", f"{common.host_launch_s * 1e6:.1f}", "host_launch_us"),
    )
    yield from ((name, value, _source_name(common.sources[key])) for name, value, key in named)


def _model_sources() -> Iterator[tuple[str, ...]]:
    for model in gpu_models():
        for figure in ("sms", "clock_mhz", "memory", "bandwidth", "copy", "l2_kib"):
            if source := model.sources.get(figure):
                yield model.title, figure, _kind(source), _source_name(source)


def _source_rows() -> Iterator[tuple[str, ...]]:
    for name, source in figure_sources().items():
        document = f"[{source.title}]({source.url})" if source.url else source.title
        record = f"; record: `{source.record}`" if source.record else ""
        yield name, _kind(source), document + record, source.version, source.date


def _sm_figures(limits: SmLimits) -> list[tuple[str, str, str]]:
    return [
        ("resident warps", f"{limits.warps}", "warps"),
        ("resident blocks", f"{limits.blocks}", "blocks"),
        ("shared memory", f"{limits.shared_memory // 1024} KiB", "shared_memory_kib"),
        ("shared memory per block, at most", f"{limits.shared_memory_block // 1024} KiB", "shared_memory_block_kib"),
        ("L1 cache and shared memory together", f"{limits.l1 // 1024} KiB", "l1_kib"),
        ("fp32 operations started per cycle", f"{limits.fp32_lanes}", "fp32_lanes"),
        ("new features for memory-bound kernels", "; ".join(limits.instructions), "instructions"),
    ]


def _by_figure(models: list[GpuModel]) -> Iterator[tuple[str, ...]]:
    def cells(figure: str, values: Mapping[str, str]) -> list[str]:
        return [f"{values[each.title]} ({_kind(each.sources[figure])})" for each in models]

    yield "SMs", *cells("sms", {each.title: f"{each.sms}" for each in models})
    yield "memory", *cells("memory", {each.title: each.memory for each in models})
    yield "bandwidth", *cells("bandwidth", {each.title: f"{each.bandwidth / 1e9:,.0f} GB/s" for each in models})
    copies = (
        f"{each.copy_bandwidth / 1e9:,.0f} GB/s (measured)" if each.copy_bandwidth else "not measured"
        for each in models
    )
    yield "copy", *copies
    yield "L2 cache", *cells("l2_kib", {each.title: f"{each.l2_bytes / 2**20:.1f} MiB" for each in models})


def _kind(source: FigureSource) -> str:
    return KINDS[source.kind]


def _source_name(source: FigureSource) -> str:
    return next(name for name, each in figure_sources().items() if each == source)


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    columns = list(header)
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns), *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"
