"""The dispatcher's choice, its messages, and what it never tries, with an op whose implementations record their
calls."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

import kernwright
from kernwright.core.errors import KernwrightError
from kernwright.core.op import define
from kernwright.runtime import dispatch as dispatch_module
from kernwright.runtime import preference
from kernwright.runtime.call import BadArgument, Call, _is_boolean
from kernwright.runtime.choice.fallback import CannotRun, Fallback
from kernwright.runtime.dispatch import Dispatcher
from kernwright.runtime.implementation import Implementation
from kernwright.runtime.library import NotBuilt


def twice(x: Tensor, w: Tensor | None = None, *, factor: float = 2.0) -> Tensor:
    return x * factor if w is None else x * factor * w


OP = define(outputs=["y"], activations=["x"])(twice)


@pytest.fixture(autouse=True)
def nothing_preferred(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(preference.BACKEND_VARIABLE, raising=False)
    monkeypatch.delenv(preference.STRICT_VARIABLE, raising=False)
    preference.reset()
    yield
    preference.reset()


def at_most(rows: int) -> Any:
    return lambda call: None if call.first.shape[0] <= rows else f"x has more than {rows} rows"


class Trace:
    """A dispatcher whose implementations record that they ran."""

    def __init__(self, cpu_rows: int = 4, triton_rows: int = 8) -> None:
        self.ran: list[str] = []
        self.dispatch = Dispatcher(
            OP,
            [
                Implementation(
                    backend="cpu", contract="close", load=lambda: self.marked("cpu"), requires=(at_most(cpu_rows),)
                ),
                Implementation(
                    backend="triton",
                    contract="close",
                    load=lambda: self.marked("triton"),
                    requires=(at_most(triton_rows),),
                ),
            ],
        )

    def marked(self, name: str) -> Any:
        def run(*arguments: Any, **named: Any) -> Tensor:
            self.ran.append(name)
            return OP.reference(*arguments, **named)  # type: ignore[return-value]

        return run


def test_the_first_that_takes_the_call_runs() -> None:
    trace = Trace()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(trace.dispatch(torch.ones(2), factor=3.0), torch.full((2,), 3.0))
        trace.dispatch(torch.ones(6))
    assert trace.ran == ["cpu", "triton"]


def test_the_search_ends_at_the_first_implementation_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_to_look(call: Call) -> None:
        raise AssertionError("what a Triton kernel's configuration is takes an import of Triton")

    monkeypatch.setattr(dispatch_module, "configured", refuse_to_look)
    answers = Trace().dispatch.answers(torch.ones(2))
    assert str(next(answers)) == "cpu (close): takes it"
    with pytest.raises(AssertionError):
        next(answers)


def test_a_fallback_says_why_once() -> None:
    trace = Trace()
    why = r"cpu \(close\): x has more than 4 rows; triton \(close\): x has more than 8"
    with pytest.warns(Fallback, match=why) as seen:
        trace.dispatch(torch.ones(9))
    assert seen[0].filename == __file__, "a line that its reader can change"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trace.dispatch(torch.ones(10))
    assert trace.ran == []


def test_strict_makes_a_fallback_an_error() -> None:
    with kernwright.preferring(strict=True), pytest.raises(CannotRun, match="would run its reference: cpu"):
        Trace().dispatch(torch.ones(9))


@pytest.mark.parametrize("how", ["argument", "block", "program"])
def test_an_explicit_request_that_cannot_be_met_names_the_requirement(how: str) -> None:
    trace = Trace()
    x = torch.ones(6)
    with pytest.raises(CannotRun, match=r"twice cannot run on cpu: cpu \(close\): x has more than 4 rows"):
        if how == "argument":
            trace.dispatch(x, backend="cpu")
        elif how == "block":
            with kernwright.preferring("cpu"):
                trace.dispatch(x)
        else:
            kernwright.prefer("cpu")
            trace.dispatch(x)
    with pytest.raises(CannotRun, match="it has no cuda implementation"):
        trace.dispatch(x, backend="cuda")
    assert trace.ran == []


def test_a_request_is_followed_where_another_would_have_been_chosen() -> None:
    trace = Trace()
    trace.dispatch(torch.ones(2), backend="triton")
    with kernwright.preferring("triton"):
        trace.dispatch(torch.ones(2))
        trace.dispatch(torch.ones(2), backend="cpu")
        trace.dispatch(torch.ones(2), backend="torch")
    assert trace.ran == ["triton", "triton", "cpu"]


def test_exact_runs_the_eager_chain_with_a_warning_if_no_kernel_is_exact() -> None:
    trace = Trace()
    with pytest.warns(Fallback, match=r"cpu \(close\): is close, where exact was asked for"):
        trace.dispatch(torch.ones(2), contract="exact")
    assert trace.ran == []
    with pytest.raises(KernwrightError, match="no contract 'roughly'"):
        trace.dispatch(torch.ones(2), contract="roughly")


def test_a_call_with_gradients_runs_the_reference_without_a_warning() -> None:
    trace = Trace()
    x = torch.ones(2, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trace.dispatch(x).sum().backward()
    assert trace.ran == [] and torch.equal(x.grad, torch.full((2,), 2.0))
    with pytest.raises(CannotRun, match="an input needs a gradient"):
        trace.dispatch(x, backend="cpu")
    with torch.no_grad():
        trace.dispatch(x)
    assert trace.ran == ["cpu"]


def test_an_error_of_the_chosen_implementation_reaches_the_caller() -> None:
    def broken(*_: Any, **__: Any) -> Tensor:
        raise RuntimeError("launch failed")

    dispatch = Dispatcher(OP, [Implementation(backend="cpu", contract="close", load=lambda: broken)])
    with pytest.raises(RuntimeError, match="launch failed"):
        dispatch(torch.ones(2))


class Unbuildable:
    """An implementation whose library cannot be built when it is needed."""

    def __init__(self, knows: bool = True) -> None:
        self.tried = 0
        self.implementation = Implementation(
            backend="cpu", contract="close", load=lambda: self.run, requires=(self.there,) if knows else ()
        )

    def there(self, call: Call) -> None:
        if self.tried:
            raise NotBuilt("twice could not be built:\nerror: no such flag\nerror: another", "mend the compiler")

    def run(self, *_: Any, **__: Any) -> Tensor:
        self.tried += 1
        raise NotBuilt("twice could not be built:\nerror: no such flag\nerror: another", "mend the compiler")


def test_an_automatic_choice_skips_a_failed_build_with_one_warning() -> None:
    own, trace = Unbuildable(), Trace()
    dispatch = Dispatcher(OP, [own.implementation, *trace.dispatch.implementations[1:-1]])
    assert str(dispatch.explain(torch.ones(2)).chosen) == "cpu (close)", "nobody has tried"
    why = r"cpu \(close\): twice could not be built: error: no such flag \(mend the compiler\)"
    with pytest.warns(Fallback, match=rf"^twice runs on triton \(close\): {why}$") as seen:
        dispatch(torch.ones(2))
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dispatch(torch.ones(2))
        dispatch(torch.ones(3))
        with kernwright.preferring(strict=True):
            dispatch(torch.ones(2))  # a kernel runs
    assert own.tried == 1 and trace.ran == ["triton"] * 4
    with pytest.warns(Fallback, match=f"^twice runs its reference: {why}; triton"):
        dispatch(torch.ones(9))
    told = str(dispatch.explain(torch.ones(2))).splitlines()
    assert told[0] == "twice: triton (close)"
    assert told[1] == "  cpu (close): twice could not be built: error: no such flag (mend the compiler)"


@pytest.mark.parametrize("how", ["argument", "block", "strict"])
def test_a_failed_build_is_an_error_if_nothing_else_may_run(how: str) -> None:
    own = Unbuildable()
    dispatch = Dispatcher(OP, [own.implementation])
    named: Any = {"backend": "cpu"} if how == "argument" else {}
    for _ in range(2):
        with kernwright.preferring("cpu" if how == "block" else None), kernwright.preferring(strict=how == "strict"):
            with pytest.raises(NotBuilt, match="remedy: mend the compiler"):
                dispatch(torch.ones(2), **named)
            if own.tried:
                assert dispatch.explain(torch.ones(2), **named).chosen is None
    assert own.tried == 1


def test_an_implementation_that_fails_to_build_is_not_chosen_again() -> None:
    own = Unbuildable(knows=False)
    with pytest.raises(NotBuilt):
        Dispatcher(OP, [own.implementation])(torch.ones(2))
    assert own.tried == 1


def test_the_latest_launch_is_reused_only_if_it_may_run() -> None:
    def launch(*arguments: Any) -> bool:
        return True

    def loaded(*arguments: Any, **named: Any) -> Any:
        return OP.reference(*arguments, **named)

    dispatch = Dispatcher(
        OP, [Implementation(backend="cpu", contract="close", load=lambda: loaded, launch=lambda device, dtype: launch)]
    )
    assert dispatch.latest(None, None) is None
    dispatch(torch.ones(2), backend="torch")
    assert dispatch.latest(None, None) is None
    dispatch(torch.ones(2))
    assert dispatch.latest(None, None) is launch
    assert dispatch.latest("cpu", "close") is launch
    assert dispatch.latest(None, "exact") is None
    assert dispatch.latest("triton", None) is None
    with kernwright.preferring("triton"):
        assert dispatch.latest(None, None) is None
        assert dispatch.latest("cpu", None) is launch


def test_an_exact_implementation_of_a_close_op_runs_only_on_request() -> None:
    def ways(*contracts: Any) -> list[Implementation]:
        return [
            Implementation(backend="cpu", contract=own, load=lambda: OP.reference, launch=lambda *_: lambda *_: True)
            for own in contracts
        ]

    both = Dispatcher(OP, ways("close", "exact"))
    assert OP.contract == "close"
    both(torch.ones(2), contract="exact")
    assert both.latest(None, "exact") is not None
    assert both.latest(None, None) is None and both.latest(None, "close") is None
    always = Dispatcher(OP.model_copy(update={"contract": "exact"}), ways("exact"))
    always(torch.ones(2))
    assert None not in [always.latest(None, own) for own in (None, "close", "exact")]


def test_an_ambiguous_launch_is_not_reused() -> None:
    own = Implementation(backend="cpu", contract="close", load=lambda: OP.reference, launch=lambda device, dtype: None)
    dispatch = Dispatcher(OP, [own])
    dispatch(torch.ones(2))
    assert dispatch.latest(None, None) is None


def test_a_repeated_call_reuses_the_earlier_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = Trace()
    asked: list[int] = []
    choose = trace.dispatch.choose
    monkeypatch.setattr(trace.dispatch, "choose", lambda *given: (asked.append(1), choose(*given))[1])
    for x in (torch.ones(2), torch.zeros(2), torch.ones(2)):
        trace.dispatch(x)
    assert len(asked) == 1
    different: list[Any] = [
        lambda: trace.dispatch(torch.ones(3)),
        lambda: trace.dispatch(torch.ones(4)[::2]),
        lambda: trace.dispatch(torch.ones(2).double()),
        lambda: trace.dispatch(torch.ones(2), torch.ones(2)),
        lambda: trace.dispatch(torch.ones(2), factor=4.0),
        lambda: trace.dispatch(torch.ones(2), backend="triton"),
        lambda: trace.dispatch(torch.ones(2, requires_grad=True)),
    ]
    for number, call in enumerate(different, 2):
        call()
        assert len(asked) == number
    with kernwright.preferring("torch"):
        trace.dispatch(torch.ones(2))
    with kernwright.preferring(strict=True):
        trace.dispatch(torch.ones(2))
    assert len(asked) == len(different) + 3
    assert trace.ran.count("triton") == 1


def test_a_remembered_choice_belongs_to_one_reading_of_the_preferences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may change a preference during a call."""
    trace = Trace()
    backends: list[Any] = [None, "triton", "triton"]
    strictness = [False, True, True]
    monkeypatch.setattr(dispatch_module, "preferred", lambda: backends.pop(0))
    monkeypatch.setattr(dispatch_module, "is_strict", lambda: strictness.pop(0))
    trace.dispatch(torch.ones(2))
    assert trace.ran == ["cpu"]
    backends[:], strictness[:] = [None, "triton", "triton"], [False, True, True]
    with pytest.warns(Fallback):
        trace.dispatch(torch.ones(9))
    backends[:], strictness[:] = [None, "cpu", "cpu"], [False, True, True]
    assert str(trace.dispatch.explain(torch.ones(6))).startswith("twice: triton (close)\n")
    monkeypatch.undo()
    trace.dispatch(torch.ones(2))
    with kernwright.preferring(strict=True), pytest.raises(CannotRun):
        trace.dispatch(torch.ones(9))
    assert trace.ran == ["cpu", "cpu"]


def test_a_remembered_fallback_is_an_error_under_strict() -> None:
    trace = Trace()
    with pytest.warns(Fallback):
        trace.dispatch(torch.ones(9))
    with kernwright.preferring(strict=True), pytest.raises(CannotRun):
        trace.dispatch(torch.ones(9))


def test_the_number_of_remembered_choices_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_module, "MOST_REMEMBERED", 3)
    trace = Trace(cpu_rows=100)
    for rows in range(1, 20):
        trace.dispatch(torch.ones(rows))
    assert len(trace.dispatch._chosen) <= 3 and len(trace.ran) == 19


def test_wrong_arguments_are_named() -> None:
    dispatch = Trace().dispatch
    with pytest.raises(BadArgument, match="w: is a float, not a tensor"):
        dispatch(torch.ones(2), 1.5)
    with pytest.raises(BadArgument, match="x: is a NoneType, not a tensor"):
        dispatch(None)
    with pytest.raises(BadArgument, match="w: is on meta, x is on cpu"):
        dispatch(torch.ones(2), torch.ones(2, device="meta"))
    with pytest.raises(BadArgument, match=r"out: y is torch.float32 \[3\], not torch.float32 \[2\]"):
        dispatch(torch.ones(2), out=torch.ones(3), backend="torch")
    with pytest.raises(BadArgument, match=r"out: has 2 tensor\(s\), twice gives 1"):
        dispatch(torch.ones(2), out=[torch.ones(2)] * 2)
    with pytest.raises(ValueError, match=r"^out: y is expanded, and cannot be written"):
        dispatch(torch.ones(2), out=torch.ones(1).expand(2))
    with pytest.raises(TypeError, match="unexpected keyword argument 'factory'"):
        dispatch(torch.ones(2), factory=2.0)


def test_a_wrong_argument_crosses_to_another_process_and_goes_by_other_names() -> None:
    wrong = BadArgument("scale", "is [7], scale_constant and x are not", "see x")
    there = pickle.loads(pickle.dumps(wrong))
    assert type(there) is BadArgument and str(there) == str(wrong)
    assert str(wrong.renamed({"x": "a", "scale": "b"})) == "b: is [7], scale_constant and a are not\n  remedy: see a"


def test_an_ops_own_check_comes_before_any_choice() -> None:
    def refuse(call: Call) -> None:
        raise BadArgument("x", "is not to its liking")

    with pytest.raises(BadArgument, match="x: is not to its liking"):
        Dispatcher(OP, [], refuse)(torch.ones(2), backend="cuda")


def test_an_explanation_lists_every_implementation() -> None:
    dispatch = Trace().dispatch
    explanation = dispatch.explain(torch.ones(6))
    assert explanation.chosen is not None and explanation.chosen.backend == "triton"
    assert str(explanation).splitlines() == [
        "twice: triton (close)",
        "  cpu (close): x has more than 4 rows",
        "  triton (close): takes it",
        "  torch (exact): takes it",
    ]
    with kernwright.preferring("cpu"):
        assert str(dispatch.explain(torch.ones(6))).startswith("twice: an error, as cpu is preferred")


def test_an_explanation_takes_all_arguments_of_the_call() -> None:
    dispatch = Trace().dispatch
    asked = dispatch.explain(torch.ones(2), backend="triton")
    assert str(asked).startswith("twice: triton (close), as triton is preferred")
    with kernwright.preferring("cpu"):
        assert str(dispatch.explain(torch.ones(2), backend="triton").chosen) == "triton (close)"
        assert str(dispatch.explain(torch.ones(2)).chosen) == "cpu (close)"
    refused = dispatch.explain(torch.ones(9), backend="triton")
    assert refused.chosen is None and str(refused).startswith("twice: an error, as triton is preferred")
    with pytest.raises(KernwrightError, match="backend: there is no backend 'tritom'"):
        dispatch.explain(torch.ones(2), backend="tritom")
    assert dispatch.explain(torch.ones(2), out=torch.empty(2)).chosen is not None


def test_an_explanation_respects_strict() -> None:
    dispatch = Trace().dispatch
    with kernwright.preferring(strict=True):
        assert str(dispatch.explain(torch.ones(2)).chosen) == "cpu (close)"
        told = dispatch.explain(torch.ones(9))
        assert told.chosen is None
        assert str(told).startswith("twice: an error, as strict forbids the reference\n  cpu")
        assert dispatch.explain(torch.ones(9), backend="torch").chosen is not None, "as the call does"
        assert Dispatcher(OP).explain(torch.ones(9)).chosen is not None, "there is nothing else that could run"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (([1.0],), {}),
        ((torch.ones(2), torch.ones(2, device="meta")), {}),
        ((torch.ones(2),), {"factor": "two"}),
        ((torch.ones(2),), {"out": torch.ones(3), "backend": "torch"}),
        ((torch.ones(2),), {"out": torch.ones(2).int(), "backend": "torch"}),
        ((torch.ones(2),), {"out": torch.ones(2, device="meta")}),
        ((torch.ones(2),), {"out": [torch.ones(2)] * 2}),
        ((torch.ones(2),), {"out": 3}),
        ((torch.ones(2, requires_grad=True),), {"out": torch.ones(2)}),
    ],
)
def test_an_explanation_raises_what_the_call_would(given: Any, named: Any) -> None:
    said = []
    for how in (Trace().dispatch, Trace().dispatch.explain):
        with pytest.raises(BadArgument) as error:
            how(*given, **named)
        said.append(str(error.value))
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("value", "is_boolean"),
    [(True, True), (numpy.bool_(False), True), (1, False), (numpy.ones(2), False), (torch.ones(()), False)],
)
def test_booleans_are_those_of_python_torch_and_numpy(value: object, is_boolean: bool) -> None:
    assert _is_boolean(value) is is_boolean
