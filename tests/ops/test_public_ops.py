"""kernwright.ops as a user sees it: every op under its own name, and nothing is imported before it is used."""

from __future__ import annotations

import copy
import inspect
import pickle
import pydoc
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import kernwright
from kernwright import ops
from kernwright.core.errors import KernwrightError
from kernwright.core.registry import ops_of_family, shipped_ops
from kernwright.ops import stubs
from kernwright.ops.catalog import dispatcher
from kernwright.runtime.preference import BACKENDS


def test_every_shipped_op_is_listed_with_the_family_that_defines_it() -> None:
    defined = {name: op.reference.__module__.split(".")[2] for name, op in shipped_ops().items()}
    assert defined == ops.FAMILIES


def test_a_later_op_of_a_family_has_a_definitions_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new op has a file besides the family's first one, because a digest covers a whole file. Without kernels it
    runs its reference."""
    text = (
        "from torch import Tensor\nfrom kernwright.core.op import define\n\n"
        "@define(outputs=['y'], activations=['x'])\ndef {name}(x: Tensor) -> Tensor:\n    return x * 2\n"
    )
    family = tmp_path / "doubling"
    family.mkdir()
    for file, name in {"__init__": "", "definition": "twice", "later_definition": "doubled", "other": "hidden"}.items():
        (family / f"{file}.py").write_text(text.format(name=name) if name else "")
    monkeypatch.setattr(ops, "__path__", [*ops.__path__, str(tmp_path)])
    monkeypatch.setitem(ops.FAMILIES, "doubled", "doubling")
    try:
        assert shipped_ops.__wrapped__().keys() - shipped_ops() == {"twice", "doubled"}
        assert torch.equal(dispatcher("doubled")(torch.ones(2)), torch.full((2,), 2.0))
    finally:
        for cached in (ops_of_family, dispatcher):
            cached.cache_clear()
        for name in [name for name in sys.modules if name.startswith("kernwright.ops.doubling")]:
            del sys.modules[name]


def test_no_family_hides_an_op_of_the_same_name() -> None:
    shipped_ops()  # every family is imported, which makes it an attribute of the package
    for name in ops.FAMILIES:
        assert callable(getattr(ops, name)), name
    assert set(ops.FAMILIES) == set(ops.__all__) <= set(dir(ops))


@pytest.mark.parametrize("module", [kernwright, ops, kernwright.nn], ids=lambda module: module.__name__)
def test_public_names_are_listed_and_documented(module: ModuleType) -> None:
    assert set(module.__all__) <= set(dir(module))
    for name in set(module.__all__) - {"__version__"}:
        own = getattr(module, name)
        assert inspect.getdoc(own), name
        if callable(own) and not (isinstance(own, type) and issubclass(own, Exception)):
            inspect.signature(own)
    text = pydoc.plain(pydoc.render_doc(module))
    assert [name for name in module.__all__ if name not in text and name != "__version__"] == []


def test_help_names_every_backend() -> None:
    for own in (kernwright.prefer, kernwright.preferring, ops.rms_norm):
        text = pydoc.plain(pydoc.render_doc(own))
        assert [name for name in BACKENDS if f'"{name}"' not in text] == [], own


def test_an_op_without_kernels_runs_its_reference() -> None:
    a, b = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    assert torch.equal(ops.concat_sequence(a, b), torch.cat([a, b], 1))
    out = torch.empty(2, 8, 4)
    assert ops.concat_sequence(a, b, out=out) is out
    assert torch.equal(out, torch.cat([a, b], 1))


def test_an_op_without_kernels_is_a_function_like_the_others() -> None:
    assert ops.rotary.__name__ == "rotary" and "pair of adjacent channels" in str(ops.rotary.__doc__)
    assert inspect.getsource(ops.rotary) == inspect.getsource(shipped_ops()["rotary"].reference)
    assert pickle.loads(pickle.dumps(ops.rotary)) is ops.rotary is copy.deepcopy(ops.rotary)
    assert pickle.loads(pickle.dumps(ops.scale_shift)) is ops.scale_shift


def test_an_op_without_kernels_is_traced_as_its_chain() -> None:
    a, b, out = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.empty(2, 8, 4)
    own = torch.compile(lambda a, b: ops.concat_sequence(a, b) + 1, fullgraph=True, backend="aot_eager")
    assert torch.equal(own(a, b), torch.cat([a, b], 1) + 1)
    torch.compile(lambda a, b, out: ops.concat_sequence(a, b, out=out), fullgraph=True, backend="aot_eager")(a, b, out)
    assert torch.equal(out, torch.cat([a, b], 1))


def test_an_unknown_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'norm_scale_shrift'"):
        _ = ops.norm_scale_shrift
    with pytest.raises(AttributeError, match="no attribute 'explode'"):
        _ = kernwright.explode


def test_importing_kernwright_and_its_ops_imports_no_torch() -> None:
    code = (
        "import sys, kernwright, kernwright.ops\n"
        "kernwright.prefer('triton')\n"
        "print([name for name in ('torch', 'triton', 'tvm_ffi', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_contract_is_an_error_in_a_later_call_too() -> None:
    x, row = torch.randn(1, 4, 64), torch.randn(64)
    with torch.no_grad():
        ops.norm_scale_shift(x, row, row)
        for own in (ops.norm_scale_shift, ops.scale_shift):
            with pytest.raises(KernwrightError, match="there is no contract 'loose'"):
                own(x, row, row, contract="loose")


def test_the_type_stub_agrees_with_the_definitions() -> None:
    assert stubs.STUB.read_text(encoding="utf-8") == stubs.stub(), "run: python -m kernwright.ops.stubs"


@pytest.mark.parametrize("name", ops.FAMILIES)
def test_a_public_function_has_the_definitions_signature_and_source(name: str) -> None:
    own, reference = getattr(ops, name), shipped_ops()[name].reference
    parameters, defined = inspect.signature(own).parameters, inspect.signature(reference).parameters
    assert list(parameters)[: len(defined)] == list(defined)
    assert {key: own.default for key, own in parameters.items() if key in defined} == {
        key: own.default for key, own in defined.items()
    }
    assert {"backend", "contract"} <= set(parameters)
    assert inspect.getsource(own) == inspect.getsource(reference)
    assert inspect.getdoc(own).startswith(inspect.cleandoc(reference.__doc__))  # type: ignore[union-attr]
    text = pydoc.plain(pydoc.render_doc(own))
    assert f"{name}(" in text and [word for word in (*parameters, "BadArgument") if word not in text] == []
