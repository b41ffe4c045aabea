"""Categories of GPU work, from the name of an event and from the host code that launched it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, get_args

from kernwright.diagnose.trace.trace import GpuEvent

Category = Literal[
    "GEMM",
    "attention",
    "norm",
    "modulation",
    "rope",
    "activation",
    "layout",
    "elementwise",
    "communication",
    "quantization",
    "sampling",
    "memory",
    "other",
]
CATEGORIES: tuple[Category, ...] = get_args(Category)

# torch.compile names a kernel after the operators that it holds: triton_poi_fused_add_mul_3.
_INDUCTOR = re.compile(r"^triton_(?P<kind>[a-z]{2,4})_fused_(?P<ops>.*?)(_\d+)?$")
# A fused kernel has the category of the first group with a word in its name: the work that dominates the traffic.
_FUSED: tuple[tuple[Category, re.Pattern[str]], ...] = (
    ("GEMM", re.compile(r"(?<![a-z])(mm|addmm|bmm|convolution)(?![a-z])")),
    ("rope", re.compile(r"rope|rotary|view_as_complex|(neg_.*(stack|cat)|(stack|cat)_.*neg)|(cos_.*sin)")),
    # A sum and a difference of products, which are joined or written into slices.
    ("rope", re.compile(r"add_(.*_)?mul_(.*_)?stack_(.*_)?sub|add_(.*_)?copy_(.*_)?mul_(.*_)?slice_(.*_)?sub")),
    ("modulation", re.compile(r"(layer_norm|rms_norm|rsqrt|var_mean).*(?<![a-z])(chunk|split|unsqueeze)(?![a-z])")),
    ("norm", re.compile(r"norm|rsqrt|var_mean")),
    ("activation", re.compile(r"gelu|silu|sigmoid|tanh|relu|erf")),
    ("sampling", re.compile(r"softmax|argmax|topk|multinomial")),
    ("modulation", re.compile(r"(?<![a-z])add(?![a-z]).*(?<![a-z])mul(?![a-z])")),
    ("layout", re.compile(r"(?<![a-z])(cat|permute|clone|copy|to_copy|transpose|index|embedding|slice|select|view)")),
)


@dataclass(frozen=True)
class CategoryRule:
    """One rule of categories.toml. A pattern that is None matches everything."""

    category: Category
    kernel: re.Pattern[str] | None
    op: re.Pattern[str] | None
    context: re.Pattern[str] | None

    def fits(self, kernel: str, ops: Sequence[str], context: str) -> bool:
        """Return whether all patterns of the rule are found."""
        if self.kernel and not self.kernel.search(kernel):
            return False
        if self.op and not any(self.op.search(op) for op in ops):
            return False
        return not self.context or bool(self.context.search(context))


@cache
def category_rules() -> tuple[CategoryRule, ...]:
    """Return the rules of categories.toml, in their order."""
    data = tomllib.loads(files("kernwright.diagnose").joinpath("categories.toml").read_text(encoding="utf-8"))
    return tuple(
        CategoryRule(
            category=rule["category"],
            kernel=_pattern(rule.get("kernel")),
            op=_pattern(rule.get("op")),
            context=_pattern(rule.get("context")),
        )
        for rule in data["rule"]
    )


def _pattern(text: str | None) -> re.Pattern[str] | None:
    return re.compile(text, re.IGNORECASE) if text else None


def category_of(event: GpuEvent) -> Category:
    """Return the category of one event by itself, without its neighbours."""
    if event.launch is None:
        return _category(event.name, (), "")
    stack = event.launch.stack
    ops = [op.name for op in (stack.op, stack.outermost_op) if op is not None]
    location = stack.location or ""
    function = location.rpartition(": ")[2]
    return _category(event.name, tuple(ops), " ".join([*stack.modules[-1:], function]))


@cache
def _category(kernel: str, ops: tuple[str, ...], context: str) -> Category:
    if (fused := _INDUCTOR.match(kernel)) and fused["kind"] != "tem":
        return next((category for category, words in _FUSED if words.search(fused["ops"])), "elementwise")
    return next((rule.category for rule in category_rules() if rule.fits(kernel, ops, context)), "other")


def is_inductor(kernel: str) -> bool:
    """Return whether torch.compile generated a kernel of this name."""
    return bool(_INDUCTOR.match(kernel))
