"""Coverage: the relation of a group of GPU work to the catalogue of fast paths."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kernwright.diagnose.catalogue.catalogue import Catalogue
from kernwright.diagnose.catalogue.fast_path import FastPath
from kernwright.diagnose.category import is_inductor
from kernwright.diagnose.chain import OpCall
from kernwright.diagnose.hotspots.gpu_work import GpuWork
from kernwright.diagnose.hotspots.hotspot import Coverage
from kernwright.diagnose.hotspots.traffic import TensorArgument, tensors_of
from kernwright.diagnose.roofline.gpu_model import gpu_named

NEAR_COPY = 0.7  # share of a copy's bandwidth from which a kernel alone cannot become much faster
ATTENTION_AXES = 4
WHOLE = 0.99  # share of a hotspot's time from which a fast path takes all of it
INDUCTOR = FastPath(
    name="torch.inductor",
    provider="torch",
    about="kernels that torch.compile fuses",
    category="elementwise",
    kernels=(r"^triton_(poi|red|per|for|tem|spl|mm)_",),
    source="torch.compile, backend inductor",
)
_LONE_VECTORISED = re.compile(r"at::native.*(vectorized_elementwise_kernel|CatArrayBatchedCopy)")
_ALIAS = {"half": "fp16", "float16": "fp16", "float": "fp32", "float32": "fp32", "bfloat16": "bf16"}


@dataclass(frozen=True)
class TraceGpu:
    """The facts about a GPU that requirements are checked against. A fact that the trace does not have is None."""

    name: str | None = None
    capability: tuple[int, int] | None = None

    @property
    def vendor(self) -> str | None:
        if is_amd(self.name):
            return "amd"
        known = self.capability is not None or self._is_known or "NVIDIA" in (self.name or "")
        return "nvidia" if known else None

    @property
    def _is_known(self) -> bool:
        return bool(self.name and gpu_named(self.name))


def is_amd(name: str | None) -> bool:
    """Return whether a GPU of this name belongs to a GPU of AMD."""
    return bool(name and re.search(r"AMD|Instinct|Radeon|^MI\d|gfx\d", name))


def coverage_of(works: Sequence[GpuWork], catalogue: Catalogue, gpu: TraceGpu, copy_share: float | None) -> Coverage:
    """Return the coverage of works of one kind.

    Args:
        copy_share: share of a copy's bandwidth that the works reach; None if it is not known.
    """
    first = works[0]
    if first.kind == "kernel":
        return _of_kernel(first, catalogue, gpu, copy_share)
    if first.kind == "run":
        return Coverage(
            status="new",
            reason=f"no known fast path covers these {len(first.calls)} operators, and one kernel could do their work",
        )
    return _of_chain(works, catalogue.replacing(first.name), gpu)


def _of_chain(works: Sequence[GpuWork], paths: Sequence[FastPath], gpu: TraceGpu) -> Coverage:
    about = works[0].pattern.about if works[0].pattern else works[0].name
    total = sum(work.us for work in works)
    served: dict[str, float] = {}
    lacking: dict[str, str] = {}
    for path in paths:
        for work in works:
            lack = unmet(path, work.calls, gpu)
            if lack is None:
                served[path.name] = served.get(path.name, 0.0) + work.us
            else:
                lacking.setdefault(path.name, lack)
    usable = [path for path in paths if path.name in served]
    ready = sorted(
        (p for p in usable if p.state == "available"), key=lambda p: -round(served[p.name] / (total or 1.0), 2)
    )
    if ready:
        share = served[ready[0].name] / total if total else 1.0
        if share >= WHOLE:
            count = _kernels_per(works)
            kernels = f"{count} kernels" if count > 1 else "a kernel of its own"
            reason = f"{about}: runs as {kernels} instead of {ready[0].name}"
            return Coverage(status="covered, off", reason=reason, paths=tuple(ready))
        reason = f"{about}: {ready[0].name} takes {share:.0%} of the time; the rest: {lacking[ready[0].name]}"
        return Coverage(status="partly", reason=reason, paths=tuple(ready))
    if usable:
        return _of_unfinished(about, usable)
    if lacking:
        name, lack = next(iter(lacking.items()))
        return Coverage(status="new", reason=f"{about}: {name} does not take it, {lack}", paths=())
    return Coverage(status="new", reason=f"{about}: no fast path of the catalogue replaces it")


def _of_unfinished(about: str, usable: Sequence[FastPath]) -> Coverage:
    work = [str(each) for path in usable for each in path.open_work]
    if work:
        return Coverage(status="in flight", reason=f"{about}: open work: {', '.join(work)}", paths=tuple(usable))
    reason = f"{about}: {usable[0].name} is defined and has no kernel yet"
    return Coverage(status="in flight", reason=reason, paths=tuple(usable))


def _kernels_per(works: Sequence[GpuWork]) -> int:
    return round(sum(len(work.events) for work in works) / len(works))


def _of_kernel(work: GpuWork, catalogue: Catalogue, gpu: TraceGpu, copy_share: float | None) -> Coverage:
    name = work.events[0].name
    if is_inductor(name):
        return Coverage(status="covered, on", reason="torch.compile has fused this work", paths=(INDUCTOR,))
    better = [path for path in catalogue.faster(name) if unmet(path, work.calls, gpu) is None]
    if better:
        low, high = better[0].speedup or (1.0, 1.0)
        reason = f"{better[0].about}: {better[0].name} is {low:g} to {high:g} times faster ({better[0].source})"
        return Coverage(status="partly", reason=reason, paths=tuple(better))
    operator = work.calls[0].op.name if work.calls and work.calls[0].op else ""
    if (path := catalogue.running(name, operator)) is not None:
        return Coverage(status="covered, on", reason=f"{path.about} already runs", paths=(path,))
    if copy_share is not None and copy_share >= NEAR_COPY:
        reason = f"runs at {copy_share:.0%} of a copy's bandwidth: only removing or fusing it saves time"
        return Coverage(status="covered, on", reason=reason)
    if copy_share is None and _LONE_VECTORISED.search(name):
        reason = "a vectorised kernel of PyTorch by itself: only fusing it with its neighbours saves time"
        return Coverage(status="covered, on", reason=reason)
    if copy_share is not None:
        reason = f"runs at {copy_share:.0%} of a copy's bandwidth, and no fast path of the catalogue replaces it"
        return Coverage(status="new", reason=reason)
    return Coverage(status="new", reason="no fast path of the catalogue has or replaces this kernel")


def unmet(path: FastPath, calls: Sequence[OpCall], gpu: TraceGpu) -> str | None:
    """Return the first requirement of a path that a call does not meet, in words. An unknown fact counts as met."""
    needs = path.requires
    if needs.vendor and gpu.vendor and needs.vendor != gpu.vendor:
        return f"which needs a GPU of {needs.vendor}, and this is {gpu.name}"
    if gpu.capability:
        own = "{}.{}".format(*gpu.capability)
        if needs.capability and gpu.capability < needs.capability:
            return "which needs compute capability {}.{}".format(*needs.capability) + f", and this GPU has {own}"
        if needs.below and gpu.capability >= needs.below:
            return "which is for compute capability below {}.{}".format(*needs.below) + f", and this GPU has {own}"
    return _unmet_by_shapes(path, calls)


def _norm_of(calls: Sequence[OpCall]) -> str | None:
    """Return the kind of norm among the calls of a chain."""
    words = {call.word for call in calls}
    if "rsqrt" in words and "pow" in words:
        return "rms_norm"
    return next((norm for norm in ("layer_norm", "rms_norm", "group_norm") if norm in words), None)


def _has_one_query(queries: TensorArgument) -> bool:
    """Return whether attention has one query token. The axis of tokens comes before or after the axis of heads."""
    return len(queries.shape) == ATTENTION_AXES and min(queries.shape[1:3]) == 1


def _unmet_by_shapes(path: FastPath, calls: Sequence[OpCall]) -> str | None:
    needs = path.requires
    if needs.norms and (norm := _norm_of(calls)) and norm not in needs.norms:
        return f"which computes {' or '.join(needs.norms)}, and this is {norm}"
    tensors = next((found for call in calls if (found := tensors_of(call))), None)
    if not tensors:
        return None
    if needs.several_queries and _has_one_query(tensors[0]):
        return "which needs more than one query token"
    main = max(tensors, key=lambda tensor: tensor.elements)
    width = main.shape[-1]
    dtype = _ALIAS.get(main.dtype, main.dtype)
    if needs.dtypes and dtype and dtype != "tensorlist" and dtype not in needs.dtypes:
        return f"which needs {' or '.join(needs.dtypes)}, and the tensor is {dtype}"
    if width % needs.width_multiple:
        return f"which needs a width that is a multiple of {needs.width_multiple}, and it is {width}"
    if width < needs.width_least:
        return f"which needs a width of at least {needs.width_least}, and it is {width}"
    if needs.width_most and width > needs.width_most:
        return f"which needs a width of at most {needs.width_most}, and it is {width}"
    return None
