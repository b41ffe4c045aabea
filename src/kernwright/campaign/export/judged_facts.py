"""JudgedFacts: the checks of an exported launcher, and how it makes its outputs, from the judged forms of calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernwright.core.errors import KernwrightError
from kernwright.core.op import Op
from kernwright.tasks.tensor import TORCH_NAMES

Form = Mapping[str, Any]


@dataclass(frozen=True)
class JudgedFacts:
    """The judged forms of an op's calls, as tables and expressions of Python."""

    op: Op
    forms: Sequence[Form]

    def table(self, field: str) -> str:
        """Return a dictionary, as text, from each tensor to its judged dtypes, numbers of axes, or layouts."""
        shown = {"dtype": self._dtypes, "dims": self._dims, "layout": self._layouts}[field]
        lines = [f'    "{own.name}": {shown(own.name)},\n' for own in self.op.tensor_parameters]
        return "{\n" + "".join(lines) + "}"

    def _tensors(self, name: str) -> list[Mapping[str, Any]]:
        return [form["tensors"][name] for form in self.forms if form["tensors"][name] is not None]

    def _dtypes(self, name: str) -> str:
        return _tuple([f"torch.{TORCH_NAMES[own['dtype']]}" for own in self._tensors(name)])

    def _dims(self, name: str) -> str:
        return _tuple([str(len(own["shape"])) for own in self._tensors(name)])

    def _layouts(self, name: str) -> str:
        found = [own["layout"] for own in self._tensors(name)]
        return _tuple([repr(own) if isinstance(own, str) else repr(tuple(own)) for own in found])

    @property
    def optional(self) -> str:
        """Return a tuple, as text, of the tensors that some judged calls lack."""
        return _tuple(
            [f'"{own.name}"' for own in self.op.tensor_parameters if len(self._tensors(own.name)) < len(self.forms)]
        )

    def scalars(self) -> str:
        """Return a dictionary, as text, from each scalar with a fixed set of judged values to these values."""
        found: dict[str, list[Any]] = {}
        for form in self.forms:
            for name, values in form["scalars"].items():
                found.setdefault(name, []).extend(values.get("one_of") or [None])
        lines = [
            f'    "{name}": {_tuple([repr(value) for value in values])},\n'
            for name, values in found.items()
            if None not in values
        ]
        return "{\n" + "".join(lines) + "}" if lines else "{}"

    def output(self, name: str) -> str:
        """Return an expression for a new output. Raise KernwrightError if none holds for all judged calls."""
        for own in self.op.tensor_parameters:
            if all(_is_like(form["outputs"][name], form["tensors"][own.name]) for form in self.forms):
                return f"torch.empty_like({own.name})"
        found = {self._sized(form, name) for form in self.forms}
        if len(found) == 1 and None not in found:
            return str(next(iter(found)))
        raise KernwrightError(
            f"no expression gives the shape of output {name} in all judged calls",
            'let the candidate make its outputs: style = "returns" in candidate.toml, and judge it again',
        )

    def _sized(self, form: Form, name: str) -> str | None:
        """Return `first.new_empty(...)` with sizes that are taken from the inputs of one form."""
        output, first = form["outputs"][name], self.op.activations[0]
        if output["layout"] != "dense":
            return None
        places = {
            size: f"{own}.shape[{at}]"
            for own, spec in reversed(form["tensors"].items())
            if spec is not None
            for at, size in reversed(list(enumerate(spec["shape"])))
            if isinstance(size, str)
        }
        sizes = []
        for size in output["shape"]:
            known = str(size) if isinstance(size, int) else _expression(size, places)
            if known is None:
                return None
            sizes.append(known)
        dtype = f"torch.{TORCH_NAMES[output['dtype']]}"
        same = all(own["outputs"][name]["dtype"] == own["tensors"][first]["dtype"] for own in self.forms)
        return f"{first}.new_empty(({', '.join(sizes)},){'' if same else f', dtype={dtype}'})"


def _is_like(output: Mapping[str, Any], own: Mapping[str, Any] | None) -> bool:
    """Return whether an output is always like a tensor. A dense tensor keeps its layout in `empty_like`."""
    return own is not None and own["layout"] in ("dense", "channels_last") and output == own


def _expression(size: str, places: Mapping[str, str]) -> str | None:
    """Return `S+2` or `F*P` with each axis replaced by a place that shows it; None if an axis is nowhere."""
    if size in places:
        return places[size]
    words = []
    for product in size.split("+"):
        factors = [word if word.isdigit() else places.get(word) for word in product.split("*")]
        if any(factor is None for factor in factors):
            return None
        words.append(" * ".join(str(factor) for factor in factors))
    return " + ".join(words)


def _tuple(words: Sequence[str]) -> str:
    known = list(dict.fromkeys(words))
    return f"({', '.join(known)}{',' if len(known) == 1 else ''})"
