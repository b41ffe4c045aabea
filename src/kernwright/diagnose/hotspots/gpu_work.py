"""GPU work: a trace's events, each as part of a chain, of a run of small operators, or as a kernel of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from kernwright.diagnose.category import Category, category_of
from kernwright.diagnose.chain import Chain, ChainPattern, OpCall, calls_of, find_chains
from kernwright.diagnose.hotspots.traffic import NORMS, elements_given, elements_made
from kernwright.diagnose.kernel_name import short_name
from kernwright.diagnose.trace.trace import GpuEvent, Trace

WorkKind = Literal["chain", "run", "kernel"]
LONGEST_RUN = 12
# Work that is bound by memory, and that one kernel may do together with its neighbours.
_SMALL: frozenset[Category] = frozenset({"norm", "modulation", "rope", "activation", "layout", "elementwise"})
_EAGER = "at::native"
_NORM_STARTS = NORMS | {"pow"}  # RMS norm as separate operators begins with a power
_CASTS = frozenset({"to", "copy"})


@dataclass(frozen=True, slots=True, eq=False)
class GpuWork:
    """Events that belong together.

    Attributes:
        name: for a chain the pattern's name, for a run its operators, for a kernel its short name.
        calls: the operator calls, in order; empty for a kernel that no operator launched.
        pattern: the pattern of a chain; None for other work.
    """

    kind: WorkKind
    name: str
    category: Category
    events: tuple[GpuEvent, ...]
    calls: tuple[OpCall, ...] = ()
    pattern: ChainPattern | None = None

    @property
    def us(self) -> float:
        return sum(event.duration_us for event in self.events)


def works_of(
    trace: Trace, patterns: Sequence[ChainPattern], is_fast: Callable[[str], bool] = lambda kernel: False
) -> Iterator[GpuWork]:
    """Yield all events of a trace as work. Each event is part of one work.

    Args:
        patterns: the chains to look for.
        is_fast: returns whether a kernel is known to be fast, so that it is part of no run.
    """
    seen: set[int] = set()
    for calls in calls_of(trace):
        chains = find_chains(calls, patterns, set(_other_tensors(calls)))
        in_chain = {id(call) for chain in chains for call in chain.calls}
        yield from map(_of_chain, chains)
        for run in _runs(calls, in_chain, is_fast):
            yield _of_run(run)
            in_chain.update(map(id, run))
        for call in calls:
            seen.update(map(id, call.events))
            if id(call) not in in_chain:
                yield from (_of_event(event, (call,)) for event in call.events)
    yield from (_of_event(event, ()) for event in trace.gpu if id(event) not in seen)


def _other_tensors(calls: Sequence[OpCall]) -> Iterator[int]:
    """Yield the positions at which a norm, or a cast before it, does not continue from the call before.

    A norm works on the result of the elementwise operator before it, or on casts of it and of the weights. If a
    result has another size than each tensor of the norm, it belongs to another stream of the model.
    """
    for place, norm in enumerate(calls):
        given = elements_given(norm) if norm.word in _NORM_STARTS else None
        before = place
        while given is not None and before > 0 and _is_elementwise(calls[before - 1]):
            before -= 1
            made = elements_made(calls[before])
            if made is not None and made not in given:
                yield before + 1
                break
            if calls[before].word not in _CASTS:
                break


def _is_elementwise(call: OpCall) -> bool:
    return call.word in _CASTS or call.word[:3] in ("add", "sub", "mul", "div")


def _of_chain(chain: Chain) -> GpuWork:
    events = tuple(event for call in chain.calls for event in call.events)
    return GpuWork(
        kind="chain",
        name=chain.pattern.name,
        category=chain.pattern.category,
        events=events,
        calls=chain.calls,
        pattern=chain.pattern,
    )


def _of_run(calls: Sequence[OpCall]) -> GpuWork:
    events = tuple(event for call in calls for event in call.events)
    by_category: dict[Category, float] = {}
    for event in events:
        category = category_of(event)
        by_category[category] = by_category.get(category, 0.0) + event.duration_us
    name = " ".join(plain_word(call) for call in calls)
    most = max(by_category, key=lambda key: by_category[key])
    return GpuWork(kind="run", name=name, category=most, events=events, calls=tuple(calls))


def plain_word(call: OpCall) -> str:
    """Return the name of a call's operator without namespace and overload."""
    if call.op is None:
        return call.word
    return call.op.name.rpartition("::")[2].partition(".")[0]


def _of_event(event: GpuEvent, calls: tuple[OpCall, ...]) -> GpuWork:
    return GpuWork(
        kind="kernel", name=short_name(event.name), category=category_of(event), events=(event,), calls=calls
    )


def _runs(calls: Sequence[OpCall], taken: set[int], is_fast: Callable[[str], bool]) -> Iterator[list[OpCall]]:
    """Yield runs of at least two consecutive eager operators. Each one works on a result of the operators before it."""
    run: list[OpCall] = []
    for call in [*calls, None]:
        fits = call is not None and id(call) not in taken and _is_small(call, is_fast)
        if run and (call is None or not fits or len(run) == LONGEST_RUN or not _follows(run, call)):
            if len(run) > 1:
                yield run
            run = []
        if fits and call is not None:
            run.append(call)


def _is_small(call: OpCall, is_fast: Callable[[str], bool]) -> bool:
    return call.op is not None and all(
        event.kind == "kernel" and _EAGER in event.name and category_of(event) in _SMALL and not is_fast(event.name)
        for event in call.events
    )


def _follows(run: Sequence[OpCall], call: OpCall) -> bool:
    """Return whether a call may work on the result of the last call. Without shapes, the answer is True."""
    made = elements_made(run[-1])
    given = elements_given(call)
    return made is None or given is None or made in given


def patterns_in_order(known: Iterable[ChainPattern], own: Iterable[ChainPattern]) -> list[ChainPattern]:
    """Return the known chains in their order. Place each further one before the first chain that has fewer words."""
    ordered = list(known)
    for pattern in own:
        place = next((at for at, other in enumerate(ordered) if other.least_words < pattern.least_words), len(ordered))
        ordered.insert(place, pattern)
    return ordered
