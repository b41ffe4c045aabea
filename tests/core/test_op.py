"""An op is its definition: its signature, its float64 oracle and its digest."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from kernwright.core.errors import BadFile
from kernwright.core.op import Op, define, ops_in
from kernwright.core.registry import ops_from_file, shipped_ops
from kernwright.core.rounding import wide
from kernwright.judge.numerics.content_pool import ContentPool
from kernwright.tasks.catalog import find_task, list_tasks
from kernwright.tasks.workload import Workload


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


@pytest.mark.parametrize("indices", [{"stranger": "x"}, {"w": "stranger"}])
def test_indices_name_parameters_and_pick_from_parameters(indices: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match=r"indices names \['stranger'\]"):
        define(outputs=["y"], activations=["x"], indices=indices)(scaled)


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


def smallest_rows() -> dict[str, tuple[Op, Workload]]:
    """Return the smallest smoke row of each shipped op."""
    found: dict[str, tuple[Op, Workload]] = {}
    for task in (find_task(name) for name in list_tasks()):
        for row in sorted(task.select("smoke"), key=lambda row: -row.bytes_min):
            found[row.op] = (task.op_of(row), row)
    return found


ROWS = smallest_rows()


def test_every_op_that_ships_has_a_row() -> None:
    assert set(ROWS) == set(shipped_ops())


@pytest.mark.parametrize("name", sorted(ROWS))
def test_shipped_oracles_never_round_to_float32(name: str) -> None:
    """Inputs that round to the same float32 give two different oracles, so no step rounds to float32."""
    op, row = ROWS[name]
    drawn = ContentPool.for_row(row, torch.Generator().manual_seed(3)).draw(op, row)
    inputs = {n: t.double() * (1 + 1e-9) if t.is_floating_point() else t for n, t in drawn.items()}
    scalars = op.scalar_defaults | row.scalars
    first = op.results(inputs, scalars)
    for moved in (n for n, t in inputs.items() if t.is_floating_point()):
        nudged = inputs[moved] * (1 + 1e-13)
        assert torch.equal(nudged.float(), inputs[moved].float())
        second = op.results(inputs | {moved: nudged}, scalars)
        assert not all(torch.equal(first[n], second[n]) for n in first), moved


@pytest.mark.parametrize("name", sorted(ROWS))
def test_shipped_references_return_outputs_as_their_rows_say(name: str) -> None:
    """Shape, dtype and layout of every output are checked, for inputs with the layout of the row."""
    op, row = ROWS[name]
    drawn = ContentPool.for_row(row, torch.Generator().manual_seed(3)).draw(op, row)
    inputs = {}
    for n, spec in row.concrete_inputs().items():
        inputs[n] = torch.empty_strided(spec.shape, spec.strides, dtype=drawn[n].dtype).copy_(drawn[n])
    outputs = dict(zip(op.outputs, op.call(inputs, op.scalar_defaults | row.scalars), strict=True))
    for n, spec in row.concrete_outputs().items():
        assert (tuple(outputs[n].shape), str(outputs[n].dtype)) == (spec.shape, f"torch.{spec.torch_dtype_name}")
        strides = [
            (own, wanted)
            for size, own, wanted in zip(spec.shape, outputs[n].stride(), spec.strides, strict=True)
            if size > 1
        ]
        assert all(own == wanted for own, wanted in strides), n


OPS_FILE = '''
from torch import Tensor
from kernwright.core.op import define

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
    # Nothing uses the new name.
    assert digest(path, OPS_FILE.replace("import define", "import define\nhelper = 1")) == first


@pytest.mark.parametrize(
    "text", ["this is not python", "raise RuntimeError('broken')", OPS_FILE.replace('["x"]', '["z"]')]
)
def test_a_definitions_file_that_cannot_be_imported_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "definitions.py"
    path.write_text(text)
    with pytest.raises(BadFile, match=r"(?s)definitions\.py: cannot be imported.*remedy: correct line \d"):
        ops_from_file(path)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("import torch\n", "@define"),
        ("def gate(x):\n    return x\n", "gate"),
        (OPS_FILE.replace("x: Tensor", "x"), "annotation"),
        (OPS_FILE.replace("x: Tensor", "x: Tensor, *, eps: float"), "eps"),
    ],
)
def test_a_definitions_file_without_a_complete_op_says_what_is_missing(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "definitions.py"
    path.write_text(text)
    with pytest.raises(BadFile, match=rf"(?s)definitions\.py.*{named}"):
        ops_from_file(path)


def test_a_definitions_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"none\.py"):
        ops_from_file(tmp_path / "none.py")
    (tmp_path / "notes.txt").write_text(OPS_FILE)
    with pytest.raises(BadFile, match="is not a Python file"):
        ops_from_file(tmp_path / "notes.txt")
