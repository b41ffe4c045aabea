"""Host stacks: the operators, Python frames and annotations that were open on a thread at a given time."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

RangeKind = Literal["op", "frame", "annotation", "runtime"]
_KINDS: tuple[RangeKind, ...] = ("op", "frame", "annotation", "runtime")
_OP, _FRAME, _ANNOTATION, _RUNTIME = range(4)

# A frame is `path/file.py(line): function`. Other entries are `nn.Module: Linear_0` and `<built-in method ...>`.
_FRAME_NAME = re.compile(r"^(?P<file>[^<].*)\((?P<line>\d+)\): (?P<function>.*)$")
_MODULE_PREFIX = "nn.Module: "
# Frames of torch itself say how a call was made, not where the model made it.
_TORCH_FILE = re.compile(r"(^|/)(torch|torch/.*|contextlib\.py|functools\.py|threading\.py)(/|$)")


# torch.compile wraps all operators of a compiled function into ranges of these names.
_REGION = re.compile(r"Torch-Compiled Region|## Call CompiledFxGraph|CompiledFunction|AOTDispatcher|TorchDynamo")


class Interned:
    """Strings by number, each stored once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._strings: list[str] = []

    def number(self, text: str) -> int:
        """Return the number of a string; the same string always has the same number."""
        found = self._numbers.setdefault(text, len(self._strings))
        if found == len(self._strings):
            self._strings.append(text)
        return found

    def __getitem__(self, number: int) -> str:
        return self._strings[number]


@dataclass(frozen=True, slots=True)
class HostRange:
    """One open range of a thread."""

    kind: RangeKind
    name: str
    start_us: float
    duration_us: float
    # Of an op: dimensions, types, strides and concrete values, as the trace has them.
    inputs: tuple[Any, ...] = field(default=(), hash=False)


@dataclass(frozen=True, slots=True)
class _Node:
    """An open range and the one around it. Launches within the same ranges share nodes."""

    number: int
    parent: _Node | None


@dataclass(frozen=True)
class HostStack:
    """The ranges that were open on a thread at one time, from the outermost to the innermost."""

    thread: HostThread
    node: _Node | None

    @cached_property
    def entries(self) -> tuple[HostRange, ...]:
        """All open ranges, outermost first."""
        found = []
        node = self.node
        while node is not None:
            found.append(self.thread.entry(node.number))
            node = node.parent
        return tuple(reversed(found))

    def of_kind(self, kind: RangeKind) -> list[HostRange]:
        """Return the open ranges of one kind, outermost first."""
        return [entry for entry in self.entries if entry.kind == kind]

    @property
    def op(self) -> HostRange | None:
        """The innermost operator."""
        return next(iter(reversed(self.of_kind("op"))), None)

    @property
    def outermost_op(self) -> HostRange | None:
        """The operator that the program itself called; within a compiled region, that the compiled code called."""
        ops = self.of_kind("op")
        return next((op for op in ops if not _REGION.match(op.name)), ops[-1] if ops else None)

    @property
    def location(self) -> str | None:
        """Return the innermost Python frame outside of torch as `file(line): function`; else the innermost frame."""
        frames = [entry.name for entry in reversed(self.of_kind("frame")) if _FRAME_NAME.match(entry.name)]
        outside = (name for name in frames if not _is_of_torch(name))
        return next(outside, next(iter(frames), None))

    @property
    def modules(self) -> list[str]:
        """Names of the open `nn.Module` calls, outermost first."""
        names = (entry.name for entry in self.of_kind("frame"))
        return [name.removeprefix(_MODULE_PREFIX) for name in names if name.startswith(_MODULE_PREFIX)]


def _is_of_torch(frame: str) -> bool:
    match = _FRAME_NAME.match(frame)
    return bool(match and _TORCH_FILE.search(match["file"]))


class HostThread:
    """Everything that the profiler recorded on one host thread, in columns."""

    def __init__(self, key: tuple[str, str], names: Interned) -> None:
        self.key = key
        self._names = names
        self._starts = array("d")
        self._durations = array("d")
        self._name_numbers = array("I")
        self._kinds = array("B")
        self._inputs: dict[int, int] = {}  # number of an op's inputs in _known_inputs, by entry
        self._known_inputs: list[tuple[Any, ...]] = []
        self._input_numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._starts)

    def add_op(self, name: int, start: float, duration: float, inputs: tuple[Any, ...]) -> int:
        """Add an operator. Return its number."""
        number = self._add(_OP, name, start, duration)
        if any(inputs):
            text = repr(inputs)
            known = self._input_numbers.setdefault(text, len(self._known_inputs))
            if known == len(self._known_inputs):
                self._known_inputs.append(inputs)
            self._inputs[number] = known
        return number

    def add_frame(self, name: int, start: float, duration: float) -> None:
        """Add a call of a Python function."""
        self._add(_FRAME, name, start, duration)

    def add_annotation(self, name: int, start: float, duration: float) -> None:
        """Add a range that the program named."""
        self._add(_ANNOTATION, name, start, duration)

    def add_runtime_call(self, name: int, start: float, duration: float) -> None:
        """Add a call of the CUDA runtime or driver."""
        self._add(_RUNTIME, name, start, duration)

    def _add(self, kind: int, name: int, start: float, duration: float) -> int:
        self._kinds.append(kind)
        self._name_numbers.append(name)
        self._starts.append(start)
        self._durations.append(duration)
        return len(self._starts) - 1

    def entry(self, number: int) -> HostRange:
        inputs = self._inputs.get(number)
        return HostRange(
            kind=_KINDS[self._kinds[number]],
            name=self._names[self._name_numbers[number]],
            start_us=self._starts[number],
            duration_us=self._durations[number],
            inputs=() if inputs is None else self._known_inputs[inputs],
        )

    def op_start(self, number: int) -> float:
        """Return when an operator started."""
        return self._starts[number]

    def stacks_at(self, times: Sequence[float]) -> Iterator[HostStack]:
        """Yield the stack at each time, in the order given. Runtime calls are not part of stacks."""
        starts, ends, order = self._sorted()
        wanted = np.argsort(np.asarray(times), kind="stable")
        answers: list[HostStack | None] = [None] * len(times)
        stack: list[tuple[float, int]] = []
        nodes: list[_Node] = []
        following = 0
        for which in wanted.tolist():
            time = times[which]
            while following < len(starts) and starts[following] <= time:
                start = starts[following]
                while stack and stack[-1][0] <= start:
                    stack.pop()
                stack.append((ends[following], order[following]))
                del nodes[len(stack) - 1 :]
                following += 1
            while stack and stack[-1][0] < time:
                stack.pop()
            # Ranges of a thread nest, but clocks are rounded: a range that has ended may lie below one that is open.
            del nodes[len(stack) :]
            while len(nodes) < len(stack):
                nodes.append(_Node(stack[len(nodes)][1], nodes[-1] if nodes else None))
            answers[which] = HostStack(self, nodes[-1] if nodes else None)
        return (answer for answer in answers if answer is not None)

    def _sorted(self) -> tuple[list[float], list[float], list[int]]:
        """Return starts, ends and numbers of all ranges but runtime calls, outer ranges before inner ones."""
        starts, durations = np.frombuffer(self._starts), np.frombuffer(self._durations)
        chosen = np.flatnonzero(np.frombuffer(self._kinds, dtype=np.uint8) != _RUNTIME) if len(self) else np.array([])
        chosen = chosen.astype(np.int64)
        order = chosen[np.lexsort((-durations[chosen], starts[chosen]))]
        ends = starts + durations
        return starts[order].tolist(), ends[order].tolist(), order.tolist()

    def spans(self, kind: RangeKind) -> Iterator[HostRange]:
        """Yield all ranges of one kind, by start."""
        chosen = np.flatnonzero(np.frombuffer(self._kinds, dtype=np.uint8) == _KINDS.index(kind))
        starts = np.frombuffer(self._starts)[chosen]
        for number in chosen[np.argsort(starts, kind="stable")].tolist():
            yield self.entry(number)
