"""Wrapping: a recording twin of a function, put where programs find the original."""

from __future__ import annotations

import functools
import inspect
import threading
import types
from collections.abc import Callable
from typing import Any

from .describe import result_of
from .recorder import Parameters, Recorder
from .target import Target

MARK = "__kernwright_capture__"
FUNCTIONS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    functools.partial,
)


def _never() -> bool:
    return False


# torch.compiler.is_compiling once the program has torch. A global of this module, so that a compiler that traces
# through a wrapper meets the function it knows, takes it for a constant, and is left with the original call.
is_compiling: Callable[[], bool] = _never


def put_wrapper(module: Any, target: Target, recorder: Recorder) -> None:
    """Replaces the target in its module, or notes why that cannot be done."""
    owner = module
    for name in target.path[:-1]:
        owner = inspect.getattr_static(owner, name, None)
        if owner is None:
            return recorder.problem(target, f"{target.module} has no {name} when its import ends")
    name = target.path[-1]
    value = inspect.getattr_static(owner, name, None)
    if value is None:
        return recorder.problem(
            target, f"{target.module} has no {'.'.join(target.path)} when its import ends: name the defining module"
        )
    if hasattr(value, MARK):
        return None
    if (overload := getattr(value, "_opoverload", None)) is not None:  # torch.library.custom_op's result
        _replace_op(overload, _of_schemas([overload._schema]), target, recorder)
        return recorder.wrapped(target)
    twin = _twin_of(value, target, recorder)
    if twin is not None:
        _put(owner, name, twin)
        recorder.wrapped(target)
    return None


def _twin_of(value: Any, target: Target, recorder: Recorder) -> Any:
    if isinstance(value, (staticmethod, classmethod)):
        inner = _twin_of(value.__func__, target, recorder)
        return None if inner is None else type(value)(inner)
    if not isinstance(value, FUNCTIONS):
        recorder.problem(target, f"is a {type(value).__name__}, not a function: name one of its class's methods")
        return None
    if inspect.iscoroutinefunction(value):
        recorder.problem(target, "is asynchronous: name a function that it calls")
        return None
    return recording(value, _parameters_of(value), target, recorder)


def _put(owner: Any, name: str, twin: Any) -> None:
    try:
        setattr(owner, name, twin)
    except (AttributeError, TypeError, ValueError):
        object.__setattr__(owner, name, twin)  # a frozen object, such as Kernwright's own Op


def _parameters_of(function: Any) -> Parameters:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # built-in functions: their arguments are named by place
        return Parameters((), "", {})
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "")
    return Parameters(positional, rest, {p.name: p.default for p in parameters if p.default is not p.empty})


def recording(function: Callable[..., Any], parameters: Parameters, target: Target, recorder: Recorder) -> Any:
    """The function with the same name, signature and results, that tells the recorder of each call."""

    def twin(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return function(*args, **kwargs)
        # Before the call: it may change its arguments' shapes.
        given = recorder.describe(target, [*args, *kwargs.values()])
        if given is None:
            return function(*args, **kwargs)
        positional = given[: len(args)]
        named = dict(zip(kwargs, given[len(args) :]))  # noqa: B905 (Python 3.9 has no strict)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            recorder.record(target, parameters, positional, named, None, type(error).__name__)
            raise
        returned = recorder.describe(target, [result])
        if returned is not None:
            recorder.record(target, parameters, positional, named, result_of(returned[0]), None)
        return result

    functools.update_wrapper(twin, function)
    setattr(twin, MARK, target.name)
    return twin


class _RecordingOp:
    """Stands for the C++ function inside a torch op: the op itself stays what it was, for compilers above all."""

    def __init__(self, op: Any, parameters: Parameters, target: Target, recorder: Recorder) -> None:
        self._op = op
        self._call = recording(op, parameters, target, recorder)
        self._inside = threading.local()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if getattr(self._inside, "now", False):
            return self._op(*args, **kwargs)  # a dispatch mode of torch, which calls the op again: the same call
        self._inside.now = True
        try:
            return self._call(*args, **kwargs)
        finally:
            self._inside.now = False

    def __hash__(self) -> int:
        return hash(self._op)  # an op's own hash is that of the function inside it

    def __getattr__(self, name: str) -> Any:
        return getattr(self._op, name)


def _replace_op(op: Any, parameters: Parameters, target: Target, recorder: Recorder) -> None:
    if not isinstance(op._op, _RecordingOp):
        op._op = _RecordingOp(op._op, parameters, target, recorder)


def _of_schemas(schemas: list[Any]) -> Parameters:
    if len(schemas) != 1:
        return Parameters((), "", {})  # which overload a call takes is not known here
    arguments = schemas[0].arguments
    positional = [argument.name for argument in arguments if not argument.kwarg_only]
    return Parameters(positional, "", {a.name: a.default_value for a in arguments if a.has_default_value()})


def watch_torch_ops(torch: Any, targets: list[Target], recorder: Recorder) -> None:
    """Ops are registered at any time: each is met when a program first asks torch.ops for it."""
    wanted = {target.torch_op: target for target in targets}

    def meet(qualified: str, packet: Any) -> None:
        target = wanted.get(qualified)
        if target is None:
            return
        overloads = [getattr(packet, name) for name in packet.overloads()]
        for overload in overloads:
            _replace_op(overload, _of_schemas([overload._schema]), target, recorder)
        _replace_op(packet, _of_schemas([overload._schema for overload in overloads]), target, recorder)
        recorder.wrapped(target)

    namespace_type = torch._ops._OpNamespace
    original = namespace_type.__getattr__

    @functools.wraps(original)
    def meeting(self: Any, op_name: str) -> Any:
        packet = original(self, op_name)
        meet(f"{self.name}::{op_name}", packet)
        return packet

    namespace_type.__getattr__ = meeting
    for namespace in list(vars(torch.ops).values()):
        if isinstance(namespace, namespace_type):
            for name, packet in list(vars(namespace).items()):
                meet(f"{getattr(namespace, 'name', '')}::{name}", packet)
