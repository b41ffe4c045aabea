"""An op that is read from source text equals the imported op in schema and digest."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernwright.core.errors import BadFile
from kernwright.core.op import Op
from kernwright.core.parsed_op import NeedsImport, OpSchema, ParsedModule, ParsedOp, parsed_shipped_ops
from kernwright.core.registry import ops_from_file, schemas_of, shipped_ops

HEAD = "import math\n\nimport torch\nfrom torch import Tensor\n\nfrom kernwright.core.op import define\n"
OP = """
@define(outputs=["y"], activations=["x"]{fields})
def f(x: Tensor{more}) -> Tensor:
    {doc}
    return {body}
"""


def definitions(folder: Path, body: str = "-x", before: str = "", more: str = "", fields: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "definitions.py"
    path.write_text(HEAD + before + OP.format(body=body, more=more, fields=fields, doc='"""Computes."""'))
    return path


def facts(op: OpSchema) -> tuple[object, ...]:
    parameters = [(parameter.name, parameter.optional) for parameter in op.tensor_parameters]
    return op.name, op.outputs, op.contract, op.inplace, parameters, dict(op.scalar_defaults), op.digest


def test_the_ops_that_ship_are_read_as_they_are_imported() -> None:
    parsed, imported = parsed_shipped_ops(), shipped_ops()
    assert {name: facts(op) for name, op in parsed.items()} == {name: facts(op) for name, op in imported.items()}


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"more": ", w: Tensor | None = None, *, eps: float = 1e-6, mode: str = 'a'", "body": "x + eps"},
        {"before": "HALF = 0.5\n", "body": "x * HALF"},
        {"before": "PAIR: tuple[int, int] = (1, -2)\n", "body": "x * PAIR[0]"},
        {"before": "def twice(v: Tensor) -> Tensor:\n    return thrice(v)\n\ndef thrice(w):\n    return 3 * w\n",
         "body": "twice(x)"},
        {"before": "import torch.nn.functional as F\n", "body": "F.silu(x) * math.pi"},
        {"before": "from torch.nn import functional as nf\n", "body": "nf.silu(x)"},
        {"before": "from kernwright.core.norms import norm as n\n", "body": "n(x, None, None, 'rms', 1e-6)"},
        {"before": "from kernwright.ops.modulation.definition import residual_gate as r\n", "body": "r.call(x, {})"},
        {"fields": ", contract='exact', propagates_nonfinite=False, inplace=['x']"},
        {"more": ", i: torch.Tensor", "fields": ", indices={'i': 'x'}"},
    ],
)  # fmt: skip
def test_an_own_op_is_read_as_it_is_imported(parts: dict[str, str], tmp_path: Path) -> None:
    path = definitions(tmp_path / "task", **parts)
    parsed = ParsedModule.read(path).ops()
    assert {name: facts(op) for name, op in parsed.items()} == {n: facts(op) for n, op in ops_from_file(path).items()}


@pytest.mark.parametrize(
    "parts",
    [
        {"before": "WIDTHS = [1, 2]\n", "body": "x * WIDTHS[0]"},  # the digest covers the whole file
        {"before": "SCALE = math.sqrt(2)\n", "body": "x * SCALE"},
        {"before": "if True:\n    SCALE = 2\n", "body": "x * SCALE"},
        {"before": "import functools\n@functools.cache\ndef one():\n    return 1\n", "body": "x * one()"},
        {"before": "from torch import rsqrt\n", "body": "rsqrt(x)"},
        {"before": "class Own:\n    two = 2\n", "body": "x * Own.two"},
        {"more": ", w: 'Tensor | None' = None"},
        {"more": ", *, eps: float = math.pi"},
        {"fields": ", inplace=list('x')"},
        {"body": "x if __name__ else -x"},
    ],
)
def test_a_file_that_only_an_import_explains_is_imported(parts: dict[str, str], tmp_path: Path) -> None:
    path = definitions(tmp_path / "task", **parts)
    with pytest.raises(NeedsImport):
        _ = ParsedModule.read(path).ops()["f"].digest
    found = schemas_of(path, ["f"])
    assert isinstance(found["f"], Op) and facts(found["f"]) == facts(ops_from_file(path)["f"])


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    first = schemas_of(definitions(tmp_path, "-x"), ["f"])["f"]
    second = schemas_of(definitions(tmp_path, "+x"), ["f"])["f"]
    assert isinstance(second, ParsedOp) and first.digest != second.digest


def test_a_file_without_ops_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "definitions.py"
    path.write_text(HEAD + "def f(x: Tensor) -> Tensor:\n    return x\n")
    with pytest.raises(BadFile, match="defines no op"):
        schemas_of(path, ["f"])
