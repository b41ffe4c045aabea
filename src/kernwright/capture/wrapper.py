"""Wrappers: replace a function by one that records its calls."""

from __future__ import annotations

import difflib
import functools
import inspect
import threading
import types
from collections.abc import Callable
from typing import Any, Protocol

from .describe import result_of
from .recorder import Parameters, Recorder
from .target import CaptureTarget

MARK = "__kernwright_capture__"
CACHED = type(functools.lru_cache(len))  # functools has no public name for this type
FUNCTIONS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    functools.partial,
    CACHED,
)
OF_A_CACHE = ("cache_info", "cache_clear", "cache_parameters")


def _never() -> bool:
    return False


# Once the program has imported torch, this is torch.compiler.is_compiling. As a global of this module, the function is
# known to a compiler that traces a wrapper: its result is then a constant, and only the original call is kept.
is_compiling: Callable[[], bool] = _never


class Follower(Protocol):
    """The response to targets of a program: a recorder notes their calls, and a replacer runs other functions
    instead."""

    def wrapped(self, target: CaptureTarget) -> None:
        """Take note that the target was found."""

    def problem(self, target: CaptureTarget, said: str) -> None:
        """Take note of the reason why the target cannot be followed."""


class Replacer(Follower, Protocol):
    """A follower that runs another function instead of a target."""

    def replacement(self, function: Callable[..., Any], target: CaptureTarget) -> Callable[..., Any]:
        """Return the function that runs instead."""


_inside = threading.local()  # set while the thread is inside a call of one of Kernwright's ops


def put_wrapper(module: Any, target: CaptureTarget, recorder: Follower) -> None:
    """Replace the target in its module, now or when the module creates it. Note the reason if that fails."""
    held = not isinstance(module, types.ModuleType) or target.path[0] in vars(module)
    provide = None if held else _provider(module)
    if provide is None:
        _replace(module, target, recorder)
    else:
        _replace_on_demand(module, provide, target, recorder)


def _provider(module: types.ModuleType) -> Callable[[str], Any] | None:
    """Return the function that creates missing attributes of a module: its `__getattr__`, or that of its class."""
    if (own := vars(module).get("__getattr__")) is not None:
        return own  # type: ignore[no-any-return]
    of_class = getattr(type(module), "__getattr__", None)
    return None if of_class is None else functools.partial(of_class, module)


def _replace_on_demand(
    module: types.ModuleType, provide: Callable[[str], Any], target: CaptureTarget, recorder: Follower
) -> None:
    """Wrap the attribute when it is created. Python calls the `__getattr__` of a module before that of its class."""
    latest: list[Any] = []

    @functools.wraps(provide)
    def providing(name: str) -> Any:
        value = provide(name)
        if name != target.path[0]:
            return value
        if vars(module).get(name) is value:
            _replace(module, target, recorder)  # the module stores the attribute, and is not asked again
            return vars(module)[name]
        if not latest or latest[0] is not value:
            holder = types.SimpleNamespace(**{name: value})
            _replace(holder, target, recorder)
            latest[:] = value, getattr(holder, name)
        return latest[1]

    module.__getattr__ = providing  # type: ignore[method-assign]


def _replace(holder: Any, target: CaptureTarget, recorder: Follower) -> None:
    owner = holder
    for name in target.path[:-1]:
        owner = inspect.getattr_static(owner, name, None)
        if owner is None:
            return _missing(holder, name, target, recorder)
    name = target.path[-1]
    value = inspect.getattr_static(owner, name, None)
    if value is None:
        return _missing(owner, ".".join(target.path), target, recorder)
    marks = getattr(value, MARK, None)
    if isinstance(marks, tuple) and target.name in marks:  # an object that is no function may have any attribute
        return None
    if (overload := getattr(value, "_opoverload", None)) is not None:  # the result of torch.library.custom_op
        if not isinstance(recorder, Recorder):
            return recorder.problem(target, "is a torch op: name the function that calls it")
        _replace_op(overload, _of_schemas([overload._schema]), target, recorder)
        return recorder.wrapped(target)
    twin = _twin_of(value, target, recorder)
    if twin is not None:
        _put(owner, name, twin)
        recorder.wrapped(target)
    return None


def _missing(owner: Any, name: str, target: CaptureTarget, recorder: Follower) -> None:
    """Record that a module has no function of this name when its import ends.

    Args:
        owner: the module or class that lacks it, whose names are compared with it.
    """
    if not target.is_own_op:
        known = [own for own in dir(owner) if not own.startswith("__")]
        close = difflib.get_close_matches(name.rpartition(".")[2], known, 3)
        asked = f"did you mean {' or '.join(close)}? Otherwise" if close else "check the spelling, or"
        said = f"{target.module} has no {name} when its import ends: {asked} name the module that defines it"
        recorder.problem(target, said)


def _twin_of(value: Any, target: CaptureTarget, recorder: Follower) -> Any:
    if isinstance(value, (staticmethod, classmethod)):
        inner = _twin_of(value.__func__, target, recorder)
        return None if inner is None else type(value)(inner)
    if type(value).__name__ == "ScriptFunction":  # made by torch.jit.script: other scripts call it without Python
        recorder.problem(target, "is compiled by torch.jit: name the function that calls it")
        return None
    if not isinstance(value, FUNCTIONS):
        recorder.problem(target, f"is a {type(value).__name__}, not a function: name one of its class's methods")
        return None
    if inspect.iscoroutinefunction(value):
        recorder.problem(target, "is asynchronous: name a function that it calls")
        return None
    if isinstance(recorder, Recorder):
        return recording(value, _parameters_of(value), target, recorder)
    return _replacing(value, target, recorder)


def _replacing(function: Callable[..., Any], target: CaptureTarget, replacer: Any) -> Any:
    """Return a function with the same name and signature that runs the replacement, except in a compiler's trace."""
    replacement = replacer.replacement(function, target)

    def twin(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return function(*args, **kwargs)
        return replacement(*args, **kwargs)

    return _like(twin, function, target)


def _put(owner: Any, name: str, twin: Any) -> None:
    try:
        setattr(owner, name, twin)
    except (AttributeError, TypeError, ValueError):
        object.__setattr__(owner, name, twin)  # a frozen object, for example an Op of Kernwright


def _parameters_of(function: Any) -> Parameters:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # arguments of built-in functions are named by position
        return Parameters()
    return Parameters(
        positional=[p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)],
        rest=next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), ""),
        by_name=[p.name for p in parameters if p.kind is p.KEYWORD_ONLY],
        defaults={p.name: p.default for p in parameters if p.default is not p.empty},
    )


def recording(function: Callable[..., Any], parameters: Parameters, target: CaptureTarget, recorder: Recorder) -> Any:
    """Return a function with the same name, signature and results that reports each call to the recorder."""

    def twin(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return function(*args, **kwargs)
        # Described before the call, which may change the shapes of its arguments.
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

    return _like(_outermost(twin, function) if target.is_own_op else twin, function, target)


def _like(whole: Callable[..., Any], function: Callable[..., Any], target: CaptureTarget) -> Any:
    """Give a twin the name and the signature of its function, and mark it, so that it is not wrapped again."""
    functools.update_wrapper(whole, function)
    if isinstance(function, CACHED):
        whole.__wrapped__ = function.__wrapped__  # type: ignore[attr-defined] # which goes past the cache
        for name in OF_A_CACHE:  # methods of the type, which functools.wraps does not copy
            if hasattr(function, name):
                setattr(whole, name, getattr(function, name))
    setattr(whole, MARK, (*getattr(function, MARK, ()), target.name))
    return whole


def _outermost(twin: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Count nested calls once: the public call of an op may call its eager chain or its torch op."""

    def outermost(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or getattr(_inside, "now", False):
            return function(*args, **kwargs)
        _inside.now = True
        try:
            return twin(*args, **kwargs)
        finally:
            _inside.now = False

    return outermost


class _RecordingOp:
    """Replaces the C++ function inside a torch op, so that the op object itself stays the same for compilers."""

    def __init__(self, op: Any, parameters: Parameters, target: CaptureTarget, recorder: Recorder) -> None:
        self._op = op
        self._target = target
        self._call = recording(op, parameters, target, recorder)
        self._inside = threading.local()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if getattr(self._inside, "now", False):
            return self._op(*args, **kwargs)  # a dispatch mode of torch calls the op again for the same call
        self._inside.now = True
        try:
            return self._call(*args, **kwargs)
        finally:
            self._inside.now = False

    def __hash__(self) -> int:
        return hash(self._op)  # the hash of an op is that of the function inside it

    def __getattr__(self, name: str) -> Any:
        return getattr(self._op, name)


def _replace_op(op: Any, parameters: Parameters, target: CaptureTarget, recorder: Recorder) -> None:
    inner = op._op
    while isinstance(inner, _RecordingOp):
        if inner._target is target:
            return
        inner = inner._op
    op._op = _RecordingOp(op._op, parameters, target, recorder)


def _of_schemas(schemas: list[Any]) -> Parameters:
    if len(schemas) != 1:
        return Parameters()  # the overload of a call is not known here
    arguments = schemas[0].arguments
    return Parameters(
        positional=[argument.name for argument in arguments if not argument.kwarg_only],
        by_name=[argument.name for argument in arguments if argument.kwarg_only],
        defaults={a.name: a.default_value for a in arguments if a.has_default_value()},
    )


def watch_torch_ops(torch: Any, targets: list[CaptureTarget], recorder: Recorder) -> None:
    """Wrap torch ops when a program first asks torch.ops for them, because ops may be registered at any time."""

    def meet(qualified: str, packet: Any) -> None:
        for target in targets:
            if target.torch_op == qualified:
                watch(target, packet)

    def watch(target: CaptureTarget, packet: Any) -> None:
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
