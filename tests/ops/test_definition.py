"""An op is its definition: what the signature says, what float64 means, what its digest covers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from kernwright.errors import BadFile
from kernwright.ops.definition import define, ops_in
from kernwright.ops.registry import ops_from_file, shipped_ops
from kernwright.ops.rounding import wide


def scaled(x: Tensor, w: Tensor | None = None, *, factor: float = 2.0, mode: str = "plain") -> Tensor:
    y = wide(x) * factor
    return (y if w is None else y * w).to(x.dtype)


def pair(x: Tensor) -> tuple[Tensor, Tensor]:
    return x + 1, x - 1


def test_the_signature_is_the_schema() -> None:
    op = define(outputs=["y"], activations=["x"])(scaled)
    assert op.name == "scaled"
    assert [(p.name, p.optional) for p in op.tensor_parameters] == [("x", False), ("w", True)]
    assert op.scalar_defaults == {"factor": 2.0, "mode": "plain"}
    assert ops_in({"a": op, "b": 3, "c": scaled}) == {"scaled": op}


@pytest.mark.parametrize("field", ["activations", "inplace"])
def test_names_that_are_no_parameters_are_refused(field: str) -> None:
    names = {"activations": ["x"], "inplace": []} | {field: ["x", "stranger"]}
    with pytest.raises(ValidationError, match=rf"{field} names \['stranger'\]"):
        define(outputs=["y"], **names)(scaled)


def test_scalars_are_no_tensors_that_could_be_activations() -> None:
    with pytest.raises(ValidationError, match="factor"):
        define(outputs=["y"], activations=["factor"])(scaled)


@pytest.mark.parametrize("empty", [{"outputs": [], "activations": ["x"]}, {"outputs": ["y"], "activations": []}])
def test_an_op_has_outputs_and_activations(empty: dict[str, list[str]]) -> None:
    with pytest.raises(ValidationError):
        define(**empty)(scaled)


def test_an_op_that_works_in_place_needs_no_outputs() -> None:
    def increment(x: Tensor) -> None:
        x += 1

    op = define(outputs=[], activations=["x"], inplace=["x"])(increment)
    x = torch.zeros(3)
    assert torch.equal(op.results({"x": x}, {})["x"], torch.ones(3))
    assert op.results({"x": x}, {}, precision=torch.float64)["x"].dtype == torch.float64
    assert not x.any(), "the tensors given stay as they were"


def test_call_gives_a_tuple_and_leaves_optional_tensors_out() -> None:
    x = torch.tensor([1.0, 2.0])
    one = define(outputs=["y"], activations=["x"])(scaled)
    assert torch.equal(one.call({"x": x}, {"factor": 3.0})[0], torch.tensor([3.0, 6.0]))
    assert torch.equal(one.call({"w": x, "x": x}, {})[0], torch.tensor([2.0, 8.0]))
    up, down = define(outputs=["up", "down"], activations=["x"])(pair).call({"x": x}, {})
    assert torch.equal(up - down, torch.full((2,), 2.0))


def test_the_oracle_is_float64_and_leaves_whole_numbers_alone() -> None:
    def pick(x: Tensor, index: Tensor) -> Tensor:
        assert index.dtype == torch.int64
        return x[index]

    op = define(outputs=["y"], activations=["x"])(pick)
    (value,) = op.oracle({"x": torch.tensor([0.1, 0.2], dtype=torch.bfloat16), "index": torch.tensor([1])}, {})
    assert value.dtype == torch.float64
    assert value.item() == float(torch.tensor(0.2, dtype=torch.bfloat16))


@pytest.mark.parametrize("name", sorted(shipped_ops()))
def test_shipped_oracles_never_round_to_float32(name: str) -> None:
    """Inputs that are one float32 make two oracles: nothing on the way narrows them."""
    op = shipped_ops()[name]
    generator = torch.Generator().manual_seed(3)
    inputs = {p.name: torch.randn(1, 4, 32, generator=generator).double() for p in op.tensor_parameters}
    for scalars in ({"norm_type": "layer"}, {"norm_type": "rms"}):
        for weight in (None, torch.randn(32, generator=generator).double()):
            given = inputs | {"weight": weight, "bias": weight}
            if scalars["norm_type"] == "rms":
                given["bias"] = None
            first = op.oracle(given, scalars)
            for moved in (n for n, t in given.items() if t is not None):
                nudged = given[moved] * (1 + 1e-11)
                assert torch.equal(nudged.float(), given[moved].float())
                second = op.oracle(given | {moved: nudged}, scalars)
                assert not all(torch.equal(a, b) for a, b in zip(first, second, strict=True)), (moved, scalars)


OPS_FILE = '''
from torch import Tensor
from kernwright.ops.definition import define

@define(outputs=["y"], activations=["x"])
def twice(x: Tensor) -> Tensor:
    """Twice x."""
    return x * 2
'''


def digest(path: Path, text: str) -> str:
    path.write_text(text)
    return ops_from_file(path)["twice"].digest


def test_digest_follows_the_text_of_the_definition_not_its_comments(tmp_path: Path) -> None:
    path = tmp_path / "definitions.py"
    first = digest(path, OPS_FILE)
    assert digest(path, OPS_FILE) == first
    assert digest(path, "# a word\n\n" + OPS_FILE.replace("    return", "    # why\n\n    return")) == first
    assert digest(path, OPS_FILE.replace("x * 2", "x + x")) != first
    assert digest(path, OPS_FILE.replace('activations=["x"]', 'activations=["x"], contract="exact"')) != first
    assert digest(path, OPS_FILE.replace("import define", "import define\nhelper = 1")) != first


@pytest.mark.parametrize(
    "text", ["this is not python", "raise RuntimeError('broken')", OPS_FILE.replace('["x"]', '["z"]')]
)
def test_a_definitions_file_that_cannot_be_imported_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "definitions.py"
    path.write_text(text)
    with pytest.raises(BadFile, match=r"(?s)definitions\.py: cannot be imported.*remedy: mend the op"):
        ops_from_file(path)


def test_a_definitions_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"none\.py"):
        ops_from_file(tmp_path / "none.py")
    (tmp_path / "notes.txt").write_text(OPS_FILE)
    with pytest.raises(BadFile, match="is not a Python file"):
        ops_from_file(tmp_path / "notes.txt")
