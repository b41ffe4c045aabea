"""ReplacedFunction: decides for each call whether the candidate or the original runs, and compares them on a sample."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from kernwright.core.errors import KernwrightError
from kernwright.diagnose.swap.argument_copies import copied, tensors_in, widened
from kernwright.diagnose.swap.binding import NotCovered
from kernwright.diagnose.swap.candidate_function import bound_function
from kernwright.diagnose.swap.output_check import CheckFinding, check_outputs
from kernwright.diagnose.swap.swap_log import SwapLog
from kernwright.runtime.preference import preferring

MOST_KNOWN = 4096  # signatures whose outcome is remembered
MOST_FIRST_CHECKS = 256  # signatures whose first call is compared; a changing argument makes many of them
DECLINED = (NotCovered, NotImplementedError, KernwrightError)  # errors that mean: this call is not covered
RAISES = "it raises"
CAPTURING = "it is the first call of its signature, inside a CUDA graph capture"

_inside = threading.local()  # set while the thread runs a candidate, or the original in a comparison


class ReplacedFunction:
    """Runs the candidate where it covers the call and the original elsewhere. Counts both.

    In the first call of each signature, the candidate runs on copies of the arguments, with strict dispatch, so that an
    op without a kernel for it declines. If `checks` is set, its results are compared with the original's in that call
    and in the 2nd, 4th, 8th, ... call, and the program gets the original's. A mismatch or an unexpected error ends the
    swap.
    """

    def __init__(self, original: Callable[..., Any], swap: Mapping[str, Any], log: SwapLog, checks: bool) -> None:
        self._original = original
        self._target = swap["target"]
        self._log = log
        self._checks = checks
        self._bound, binding = bound_function(original, swap)
        self._known: dict[Any, int | None] = {}  # None: covered; else the counter of the reason
        self._calls = self._compared = 0
        self._ended: int | None = None
        self._swapped = log.slot(self._target, "swapped")
        log.note({"target": self._target, "binding": binding})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if getattr(_inside, "now", False):
            return self._original(*args, **kwargs)
        if self._ended is not None:
            self._log.count(self._ended)
            return self._original(*args, **kwargs)
        key = _key(args, kwargs)
        if key not in self._known:
            return self._first(key, args, kwargs)
        reason = self._known[key]
        if reason is not None:
            self._log.count(reason)
            return self._original(*args, **kwargs)
        self._calls += 1
        if self._checks and self._calls & (self._calls - 1) == 0 and not _capturing():
            return self._compare(key, args, kwargs)
        return self._run(key, args, kwargs, strict=False)

    def _first(self, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the first call of a signature."""
        if _capturing():
            return self._decline(None, CAPTURING, args, kwargs)
        if self._compared < MOST_FIRST_CHECKS:
            return self._compare(key, args, kwargs) if self._checks else self._warm_up(key, args, kwargs)
        return self._run(key, args, kwargs, strict=True)

    def _warm_up(self, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the candidate on copies to load its kernels, and then run the call. Note the time of the copies."""
        begin = _now()
        refusal, _ = self._attempt(copied((args, kwargs)))
        self._compared += 1
        self._log.note({"target": self._target, "extra_ms": 1e3 * (_now() - begin), "number": self._compared})
        if refusal is not None:
            return self._decline(key, refusal, args, kwargs)
        self._remember(key, None)
        return self._run(key, args, kwargs, strict=False)

    def _run(self, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any], strict: bool) -> Any:
        """Run the candidate in the program's place, or the original if it declines."""
        _inside.now = True
        try:
            if strict:
                with preferring(strict=True):
                    result = self._bound(*args, **kwargs)
            else:
                result = self._bound(*args, **kwargs)
        except DECLINED as reason:
            return self._decline(key, _text(reason), args, kwargs)
        except Exception as error:
            _inside.now = False
            if strict:
                return self._decline(key, f"{RAISES} {_text(error)}", args, kwargs)
            self._end({"raised": _text(error)})
            return self(*args, **kwargs)
        finally:
            _inside.now = False
        if strict:
            self._remember(key, None)
        self._log.count(self._swapped)
        return result

    def _decline(self, key: Any, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        slot = self._log.slot(self._target, "original", reason)
        if key is not None:
            self._remember(key, slot)
        self._log.count(slot)
        _inside.now = False
        return self._original(*args, **kwargs)

    def _remember(self, key: Any, slot: int | None) -> None:
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[key] = slot

    def _end(self, said: dict[str, Any]) -> None:
        """End the swap: from now on the original runs."""
        self._ended = self._log.slot(self._target, "original", "the swap has ended")
        self._log.note({"target": self._target, **said})

    def _compare(self, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run both functions and compare them. Return the original's results, whatever the candidate does."""
        begin = _now()
        own, wide = copied((args, kwargs)), _try_widened((args, kwargs))
        refusal, got = self._attempt(own)
        began_original = _now()
        _inside.now = True  # functions that it calls must not be replaced: the candidate may replace all of them
        try:
            expected = self._original(*args, **kwargs)
        finally:
            _inside.now = False
        took_original = _now() - began_original
        if refusal is not None:
            if key in self._known and refusal.startswith(RAISES):
                self._end({"raised": refusal.removeprefix(RAISES).strip()})
            slot = self._log.slot(self._target, "original", refusal)
            self._remember(key, slot)
            self._log.count(slot)
            findings = []
        else:
            findings = self._findings(got, expected, own, (args, kwargs), wide)
            self._remember(key, None)
            self._log.count(self._log.slot(self._target, "compared"))
        self._compared += 1
        self._report(findings, 1e3 * (_now() - begin - took_original), (args, kwargs))
        return expected

    def _attempt(self, call: tuple[tuple[Any, ...], dict[str, Any]]) -> tuple[str | None, Any]:
        """Run the candidate on copies. Return the reason why it does not cover the call, or None, and its result."""
        args, kwargs = call
        _inside.now = True
        try:
            with _same_random_numbers(call), preferring(strict=True):
                return None, self._bound(*args, **kwargs)
        except DECLINED as reason:
            return _text(reason), None
        except Exception as error:
            return f"{RAISES} {_text(error)}", None
        finally:
            _inside.now = False

    def _findings(self, got: Any, expected: Any, own: Any, given: Any, wide: Any) -> list[CheckFinding]:
        oracle = self._oracle(wide) if wide is not None else None
        findings = check_outputs(got, expected, oracle, "result")
        return findings + check_outputs(
            list(tensors_in(own)),
            list(tensors_in(given)),
            None if oracle is None else list(tensors_in(wide)),
            "argument",
        )

    def _oracle(self, wide: tuple[tuple[Any, ...], dict[str, Any]]) -> Any:
        """Return the original's result in float64; None if it does not run in float64."""
        args, kwargs = wide
        _inside.now = True
        try:
            with torch.no_grad(), _same_random_numbers(wide), _without_autocast():
                return self._original(*args, **kwargs)
        except Exception:  # many functions require a dtype: then the results are compared with each other
            return None
        finally:
            _inside.now = False

    def _report(self, findings: list[CheckFinding], extra_ms: float, call: Any) -> None:
        bad = next((each for each in findings if each.problem), None)
        worst = bad or max(findings, key=lambda each: each.max_error, default=None)
        record = {} if worst is None else worst.as_record()
        self._log.note({"target": self._target, "check": record, "extra_ms": extra_ms, "number": self._compared})
        if bad is not None:
            shapes = ", ".join(f"{str(t.dtype)[6:]}{list(t.shape)}" for t in tensors_in(call))
            self._end({"mismatch": f"{bad.output}: {bad.problem}", "call": shapes})


def _key(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the facts on which coverage of a call depends. They are computed in every call, so this must be fast."""
    facts: list[Any] = [torch.is_grad_enabled(), len(args), *kwargs]
    for value in (*args, *kwargs.values()) if kwargs else args:
        if type(value) is Tensor:
            facts += value.shape, value.stride(), value.dtype, value.device, value.requires_grad
        else:
            facts.append(_fact(value))
    return tuple(facts)


def _fact(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.shape, value.stride(), value.dtype, value.device, value.requires_grad
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return kind, value
    if kind in (tuple, list):
        return tuple([_fact(each) for each in value])
    if kind is dict:
        return tuple([(name, _fact(each)) for name, each in value.items()])
    return kind, id(value) if isinstance(value, torch.nn.Module) else None


def _text(error: BaseException) -> str:
    """Return an error in one line, without its remedy."""
    said = error.cause if isinstance(error, KernwrightError) else str(error)
    named = said if isinstance(error, DECLINED) and said else f"{type(error).__name__}: {said}"
    return " ".join(named.split())[:300]


def _uses_cuda() -> bool:
    """Return whether the program uses CUDA, without initializing CUDA: after that, a program cannot fork."""
    return torch.cuda.is_initialized()  # type: ignore[no-untyped-call,no-any-return]


def _capturing() -> bool:
    return _uses_cuda() and torch.cuda.is_current_stream_capturing()


def _now() -> float:
    """Return the time when the device has finished."""
    if _uses_cuda():
        torch.cuda.synchronize()
    return time.perf_counter()


def _try_widened(call: Any) -> Any:
    try:
        return widened(call)
    except Exception as error:  # a module that cannot be copied, or too little memory
        sys.stderr.write(f"kernwright: the original cannot run in float64: {_text(error)}\n")
        return None


def _same_random_numbers(call: Any) -> Any:
    """Return a context that restores the random number generators at its end."""
    devices = {tensor.device.index for tensor in tensors_in(call) if tensor.device.type == "cuda"}
    return torch.random.fork_rng(devices=sorted(devices))


def _without_autocast() -> Any:
    """Return a context in which nothing is cast to a lower precision."""
    contexts = ExitStack()
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            contexts.enter_context(torch.autocast(device, enabled=False))
    return contexts
