"""Chains: sequences of operator calls in a trace that one fused kernel could replace."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from kernwright.diagnose.category import Category
from kernwright.diagnose.trace.host_stack import HostRange
from kernwright.diagnose.trace.trace import GpuEvent, Trace

# Operators that do the same work share a word.
_WORDS = {
    "type_as": "to",
    "_to_copy": "to",
    "float": "to",
    "contiguous": "copy",
    "clone": "copy",
    "stack": "cat",
    "concat": "cat",
    "native_layer_norm": "layer_norm",
    "_fused_rms_norm": "rms_norm",
    "native_group_norm": "group_norm",
    "linear": "gemm",
    "addmm": "gemm",
    "mm": "gemm",
    "bmm": "gemm",
    "matmul": "gemm",
    "scaled_dot_product_attention": "attention",
}
# Kernels of ATen and matrix multiplications, for events without a known operator. The first match counts.
_KERNEL_WORDS = tuple(
    (re.compile(pattern), word)
    for pattern, word in (
        (r"flash(?!infer)|fmha|sdpa", "attention"),
        (r"nvjet|xmma_gemm|s\d{3,5}gemm|gemv|cublas|cutlass::(Kernel|device_kernel)|Cijk_|sgemm_", "gemm"),
        (r"at::native.*(layer_norm_kernel<.*, true>|rms_norm)", "rms_norm"),
        (r"at::native.*layer_norm", "layer_norm"),
        (r"at::native.*CatArray", "cat"),
        (r"at::native.*(bfloat16|float16|half)_copy_kernel|at::native::unrolled_elementwise.*direct_copy", "to"),
        (r"at::native.*direct_copy", "copy"),
        (r"at::native.*pow_tensor_scalar", "pow"),
        (r"at::native.*MeanOps", "mean"),
        (r"at::native.*rsqrt_kernel", "rsqrt"),
        (r"at::native.*neg_kernel", "neg"),
        (r"at::native.*silu_kernel", "silu"),
        (r"at::native.*Gelu", "gelu"),
        (r"at::native.*complex.*MulFunctor", "mulC"),
        (r"at::native.*MulFunctor", "mul"),
        (r"at::native.*CUDAFunctor(OnSelf|OnOther)?_add", "add"),
        (r"at::native.*DivFunctor", "div"),
        (r"at::native.*softmax|SoftMaxForward", "softmax"),
    )
)
_BINARY = frozenset({"add", "sub", "mul", "div"})
_OPERANDS = 2
_PART = re.compile(r"(\w+|\[\w+\])\??")
TAKEN = "-"  # the word of a call that is already part of a chain
BREAK = "| "  # stands where no chain continues


@dataclass(frozen=True)
class OpCall:
    """One operator call of the program, with the GPU's events that it launched.

    `word` is a short form of the operator's name, as in chains. For add, sub, mul and div it ends with the kind of the
    operands: `S` for a number, `B` if one tensor is broadcast, `E` for equal shapes, `C` for complex numbers,
    `U` if the trace has no shapes.
    """

    word: str
    events: tuple[GpuEvent, ...]
    op: HostRange | None = None

    @property
    def duration_us(self) -> float:
        return sum(event.duration_us for event in self.events)


def word_of(name: str, inputs: Sequence[object]) -> str:
    """Return the word of an operator call, given the inputs that the profiler recorded."""
    bare = name.rpartition("::")[2].partition(".")[0]
    bare = bare.rstrip("_") if not bare.endswith("__") else bare
    word = _WORDS.get(bare, bare)
    return word + _operands(inputs) if word in _BINARY else word


@cache
def word_of_kernel(kernel: str) -> str:
    """Return the word of the operator that launches a kernel, from the kernel's name alone, as in a CUDA graph."""
    word = next((word for pattern, word in _KERNEL_WORDS if pattern.search(kernel)), "kernel")
    return f"{word}U" if word in _BINARY else word


def _operands(inputs: Sequence[object]) -> str:
    dims, types = (inputs[number] if len(inputs) > number else None for number in (0, 1))
    if not isinstance(dims, list) or len(dims) < _OPERANDS:
        return "U"
    if isinstance(types, list) and any("complex" in str(kind).lower() for kind in types[:_OPERANDS]):
        return "C"
    first, second = dims[:_OPERANDS]
    if not first or not second:
        return "S"
    return "E" if first == second else "B"


def calls_of(trace: Trace) -> list[list[OpCall]]:
    """Return the operator calls of each host thread that launched work, in the order of their launches.

    Events without a launch in the trace are taken in the order of their stream.
    """
    found: dict[tuple[object, ...], list[GpuEvent]] = {}
    for event in trace.gpu:
        key = (event.device, event.stream) if event.launch is None else event.launch.thread
        found.setdefault(key, []).append(event)
    return [list(_calls(events)) for events in found.values()]


def _calls(events: list[GpuEvent]) -> Iterator[OpCall]:
    current: list[GpuEvent] = []
    op: HostRange | None = None
    for event in sorted(events, key=lambda event: event.launch.start_us if event.launch else event.start_us):
        if event.kind == "memset":  # it clears the workspace of a GEMM and is not part of a chain
            continue
        found = event.launch.stack.outermost_op if event.launch else None
        if current and (found is None or found != op):
            yield _call(op, current)
            current = []
        current.append(event)
        op = found
    if current:
        yield _call(op, current)


def _call(op: HostRange | None, events: list[GpuEvent]) -> OpCall:
    if op is None:
        return OpCall(word_of_kernel(events[0].name), tuple(events))
    return OpCall(word_of(op.name, op.inputs), tuple(events), op)


@dataclass(frozen=True)
class ChainPattern:
    """A chain to look for: a regular expression over words, each followed by one space."""

    name: str
    category: Category
    pattern: re.Pattern[str]
    gaps: frozenset[str] = frozenset()  # words that may lie within the chain without being part of it
    about: str = ""
    kept: frozenset[str] = frozenset()  # words of calls whose results are used after the chain, too
    least_words: int = 1


@dataclass(frozen=True)
class Chain:
    """A chain that was found in a trace."""

    pattern: ChainPattern
    calls: tuple[OpCall, ...]
    first: int = field(compare=False)  # position of the first call on its thread

    @property
    def duration_us(self) -> float:
        return sum(call.duration_us for call in self.calls)


@cache
def chain_patterns() -> tuple[ChainPattern, ...]:
    """Return the chains of chains.toml, longest first as written there."""
    data = tomllib.loads(files("kernwright.diagnose").joinpath("chains.toml").read_text(encoding="utf-8"))
    return tuple(
        chain_pattern(
            entry["name"], entry["category"], spelling, about=entry["about"], kept=frozenset(entry.get("kept", ()))
        )
        for entry in data["chain"]
        for spelling in entry["spellings"]
    )


def chain_pattern(
    name: str, category: Category, spelling: str, about: str = "", kept: frozenset[str] = frozenset()
) -> ChainPattern:
    """Return the chain with a spelling as in chains.toml.

    Raises:
        ValueError: if the spelling has no word that is required, or a word that no operator can have.
    """
    parts = spelling.split()
    for part in parts:
        if not _PART.fullmatch(part):
            raise ValueError(f"{part!r} is not a word of a chain: write names of operators, `?` after optional ones")
    required = [part for part in parts if not part.endswith("?")]
    if not required:
        raise ValueError(f"the chain {spelling!r} has no required word")
    return ChainPattern(
        name=name,
        category=category,
        pattern=_compiled(spelling),
        gaps=frozenset(re.findall(r"\[(\w+)\]", spelling)),
        about=about,
        kept=kept,
        least_words=len(required),
    )


def _compiled(spelling: str) -> re.Pattern[str]:
    """Compile `layer_norm addS? mulB`. A word may be optional. `U` (no shapes) matches every kind but complex."""
    parts = []
    for part in spelling.split():
        word, optional = part.rstrip("?").strip("[]"), part.endswith("?")
        binary = re.fullmatch(r"(add|sub|mul|div)([SBEC]+)", word)
        unknown = "" if binary and binary[2] == "C" else "U"
        text = f"{binary[1]}[{binary[2]}{unknown}]" if binary else word
        parts.append(f"(?:{text} ){'?' if optional else ''}")
    return re.compile(r"(?<![^ ])" + "".join(parts))


def find_chains(
    calls: Sequence[OpCall], patterns: Iterable[ChainPattern] | None = None, breaks: Collection[int] = ()
) -> list[Chain]:
    """Return the chains among a thread's calls. A call is part of one chain at most; earlier patterns go first.

    Args:
        breaks: positions of calls that continue no chain.
    """
    words = [call.word for call in calls]
    found: list[Chain] = []
    for pattern in chain_patterns() if patterns is None else patterns:
        text, starts = _text_of(words, breaks)
        for match in pattern.pattern.finditer(text):
            first, end = starts[match.start()], starts[match.end()]
            if first == end:
                continue
            members = [number for number in range(first, end) if words[number] not in pattern.gaps]
            found.append(Chain(pattern, tuple(calls[number] for number in members), first))
            for number in members:
                words[number] = TAKEN
    return sorted(found, key=lambda chain: chain.first)


def _text_of(words: Sequence[str], breaks: Collection[int]) -> tuple[str, dict[int, int]]:
    """Return the words as one text with a mark at each break, and the number of the word at each position."""
    parts: list[str] = []
    starts = {}
    position = 0
    for number, word in enumerate(words):
        starts[position] = number  # the end of a chain before a break
        mark = BREAK if number in breaks else ""
        starts[position + len(mark)] = number
        parts.append(f"{mark}{word} ")
        position += len(parts[-1])
    starts[position] = len(words)
    return "".join(parts), starts
