"""The fast paths of Kernwright itself, written from the op registry and the recorded rows of the tasks.

    python -m kernwright.diagnose.catalogue.own_paths            # writes own.toml
    python -m kernwright.diagnose.catalogue.own_paths --check    # checks that own.toml agrees with the registry

The chain that an op replaces is found by running its definition once on small tensors: the operators that it calls are
the spelling. Chains of chains.toml within that spelling are named.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kernwright.core.op import Op
from kernwright.core.registry import shipped_families, shipped_ops
from kernwright.diagnose.chain import OpCall, find_chains, word_of
from kernwright.ops.catalog import dispatcher
from kernwright.tasks.catalog import list_tasks
from kernwright.tasks.task import load_task
from kernwright.tasks.workload import Workload

OWN = Path(__file__).parent / "own.toml"
SOURCES = Path(__file__).parents[2] / "ops"
MOST_MODELS = 12
MOST_BYTES = 500_000  # largest row that definitions are run on
MOST_REPEATS = 3  # consecutive calls that one chain may cover, such as queries, keys and values
RMS_NORM = re.compile(
    r"(?<!\S)(?:to )?pow mean addS rsqrt (?:to )?mulB (?:(?:to )?mulB )?(?:to )?"
)  # on a CPU, this is not an operator call
_FAMILY_CATEGORY = {
    "layout": "layout",
    "plain_norm": "norm",
    "residual_norm": "norm",
    "vae": "norm",
    "rotation": "rope",
    "query_key": "rope",
}
HEAD = """\
# Fast paths of Kernwright itself. Written by `python -m kernwright.diagnose.catalogue.own_paths` from the op registry:
# change the ops, not this file.

[[path]]
name = "kernwright"
provider = "kernwright"
about = "a kernel of kernwright.ops"
category = "modulation"
kernels = ['kernwright::']
source = "kernwright.ops"
"""


def text() -> str:
    """Return the text of own.toml."""
    rows = _rows()
    # If ops replace the same chain, the one that most models use comes first.
    ops = sorted(shipped_ops().values(), key=lambda op: (-len(_models(rows.get(op.name, []))), op.name))
    return HEAD + "".join(_entry(op, shipped_families()[op.name], rows.get(op.name, [])) for op in ops)


def _rows() -> dict[str, list[Workload]]:
    found: dict[str, list[Workload]] = {}
    for folder in list_tasks().values():
        for row in load_task(folder).rows:
            found.setdefault(row.op, []).append(row)
    return found


def _entry(op: Op, family: str, rows: Sequence[Workload]) -> str:
    backends = [name for name in dispatcher(op.name).backends if name in ("cuda", "triton")]
    spelled = [form for row in _variants(rows) for form in _forms(operators_of(op, row))]
    chains = sorted({chain for words in spelled for chain in _chains_of(words)})
    own = [] if chains else sorted({" ".join(_with_optional_casts(words)) for words in spelled if _is_long(words)})
    if not chains and not own and not backends:
        return ""
    fields: dict[str, Any] = {
        "name": f"kernwright.{op.name}",
        "provider": "kernwright",
        "about": _about(op),
        "category": _FAMILY_CATEGORY.get(family, "modulation"),
        "state": "available" if backends else "definition",
        "kernels": [f"^{name}$" for name in _triton_kernels(family)] if "triton" in backends else [],
        "operators": [f"^kernwright::{op.name}$"],
        "chains": chains,
        "spellings": own,
        "copy_share": [0.9, 1.0],
        "models": _models(rows)[:MOST_MODELS],
        "turn_on": f"call kernwright.ops.{op.name} in place of the chain" if backends else "",
        "source": f"kernwright.ops.{op.name}, contract {op.contract}",
    }
    needs = {"dtypes": ["bf16", "fp16", "fp32"], "norms": _norms(op, spelled), "width_most": 65536} if backends else {}
    return (
        "\n[[path]]\n"
        + "".join(f"{key} = {_toml(value)}\n" for key, value in fields.items() if value)
        + (
            "\n[path.requires]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in needs.items() if value)
            if needs
            else ""
        )
    )


def _norms(op: Op, spelled: Sequence[Sequence[str]]) -> list[str]:
    """Return the kinds of norm that the definition computes; nothing if the caller chooses the kind."""
    if "norm_type" in op.scalar_defaults:
        return []
    words = {word for own in spelled for word in own}
    return [norm for norm in ("layer_norm", "rms_norm", "group_norm") if norm in words]


def _models(rows: Sequence[Workload]) -> list[str]:
    return sorted({model for row in rows if row.set == "production" for model in row.models})


def _variants(rows: Sequence[Workload]) -> list[Workload]:
    """Return a row for each set of tensors and dtype: the largest of the small ones, whose axes differ most."""
    found: dict[tuple[str, ...], Workload] = {}
    for row in sorted(rows, key=lambda row: (row.bytes_min, row.id)):
        key = (*_broadcast(row), next(iter(row.inputs.values())).dtype, str(sorted(row.scalars.items())))
        if row.bytes_min <= MOST_BYTES or key not in found:
            found[key] = row
    return list(found.values())


def _broadcast(row: Workload) -> list[str]:
    """Return the names of a row's tensors, each with True if it has the shape of the first one."""
    tensors = row.concrete_inputs()
    first = next(iter(tensors.values())).shape
    return [f"{name} {tensor.shape == first}" for name, tensor in tensors.items()]


def _chains_of(words: Sequence[str]) -> set[str]:
    """Return the chains that cover the whole definition, once or several times in a row."""
    found = set()
    for times in range(1, MOST_REPEATS + 1):
        several = list(words) * times
        chains = find_chains([OpCall(word, ()) for word in several])
        if len(chains) == 1 and _is_whole(chains[0].first, len(chains[0].calls), several):
            found.add(chains[0].pattern.name)
    return found


def _forms(words: Sequence[str]) -> list[list[str]]:
    """Return the words as they are, and with `rms_norm` in place of the operators that it consists of."""
    joined = RMS_NORM.sub("rms_norm ", " ".join([*words, ""])).split()
    return [list(words)] if joined == list(words) else [list(words), joined]


def _is_long(words: Sequence[str]) -> bool:
    return sum(word != "to" for word in words) > 1


def _with_optional_casts(words: Sequence[str]) -> list[str]:
    """Return words with casts and copies made optional. Those that follow each other become one."""
    found: list[str] = []
    for word in words:
        if word not in ("to", "copy"):
            found.append(word)
        elif not found or found[-1] != f"{word}?":
            found.append(f"{word}?")
    return found


def _is_whole(first: int, length: int, words: Sequence[str]) -> bool:
    others = [word for at, word in enumerate(words) if not first <= at < first + length and word != "to"]
    return not others


def _about(op: Op) -> str:
    lines = inspect.cleandoc(op.reference.__doc__ or op.name).splitlines()
    return re.sub(r"\s+", " ", lines[0]).rstrip(".")


def _triton_kernels(family: str) -> Iterator[str]:
    """Yield the names of a family's Triton kernels: jitted functions that no other one calls."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted((SOURCES / family).glob("*triton.py")))
    yield from re.findall(r"@triton\.jit[^\n]*\n(?:@[^\n]*\n)*def ([a-z]\w+)\(", text)


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the words of all operators except views."""

    words: list[str]

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.words = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not _makes_nothing(func, result):
            shapes = [list(arg.shape) if isinstance(arg, Tensor) else [] for arg in args]
            self.words.append(word_of(func.name(), (shapes, None)))
        return result


def _makes_nothing(func: Any, result: Any) -> bool:
    """Return whether a call launches nothing on a GPU because it makes a view or uninitialized memory."""
    return (
        func.is_view
        or "empty" in func.name()
        or "_unsafe_view" in func.name()
        or not isinstance(result, Tensor | tuple | list)
    )


def operators_of(op: Op, row: Workload) -> list[str]:
    """Return the words of the operators that an op's definition calls on a row."""
    tensors = {
        name: torch.ones(tensor.shape).to(getattr(torch, tensor.torch_dtype_name))
        for name, tensor in row.concrete_inputs().items()
    }
    seen = _Operators()
    with torch.no_grad(), seen:
        op.call(tensors, op.scalar_defaults | dict(row.scalars))
    return seen.words


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    return str(value)


def main(arguments: Sequence[str]) -> int:
    if "--check" not in arguments:
        OWN.write_text(text(), encoding="utf-8")
        return 0
    if OWN.is_file() and OWN.read_text(encoding="utf-8") == text():
        return 0
    print(f"{OWN} differs from the ops; run: python -m kernwright.diagnose.catalogue.own_paths", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
