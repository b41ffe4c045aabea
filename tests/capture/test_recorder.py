"""Facts that are recorded about a program's calls, and facts that never are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernwright.capture.capture import CapturedCall, CapturedDict, CapturedList, CapturedOther, CapturedScalar
from kernwright.capture.recorder import Parameters, Recorder
from kernwright.capture.target import CaptureTarget

Capturing = Callable[..., Any]


def test_calls_are_counted_by_signature_however_they_are_written(capture: Capturing) -> None:
    run = capture(
        "from library import scale\n"
        "scale(1); scale(1, 2.0); scale(factor=2.0, x=1); scale(x=1, label=None)\n"
        "scale(1.0); scale(True); scale('a', 3, label='b')\n",
        "library:scale",
    )
    assert run.done.returncode == 0
    assert run.counts() == {
        "scale(1, 2.0, None)": 4,
        "scale(1.0, 2.0, None)": 1,
        "scale(True, 2.0, None)": 1,
        "scale('a', 3, 'b')": 1,
    }
    assert [a.name for a in run.capture.calls[0].arguments] == ["x", "factor", "label"]


def test_the_order_in_which_a_call_writes_keywords_makes_no_other_signature(capture: Capturing) -> None:
    """Required keywords have no default, and those for ** are not in the signature. Both may come in any order."""
    run = capture(
        "from wide import wide\n"
        "wide(1, gate=2, shift=3); wide(1, shift=3, gate=2); wide(shift=3, x=1, gate=2)\n"
        "wide(1, gate=2, shift=3, c=4, a=5); wide(1, a=5, c=4, shift=3, gate=2)\n",
        "wide:wide",
        prepare={"wide.py": "def wide(x, eps=0.5, *, shift, scale=7, gate, **rest):\n    return x\n"},
    )
    assert run.counts() == {"wide(1, 0.5, 3, 7, 2)": 3, "wide(1, 0.5, 3, 7, 2, 5, 4)": 2}
    names = max(([a.name for a in call.arguments] for call in run.capture.calls), key=len)
    assert names == ["x", "eps", "shift", "scale", "gate", "a", "c"]


def test_many_arguments(capture: Capturing) -> None:
    run = capture("from library import several\nseveral(*range(100))\n", "library:several")
    (call,) = run.capture.calls
    assert [a.name for a in call.arguments] == [f"items[{n}]" for n in range(100)]


def test_methods_and_other_holders_of_functions(capture: Capturing) -> None:
    run = capture(
        "import library\nfrom library import Layer\n"
        "class Own(Layer): pass\n"
        "Layer().forward(1); Own().forward(1); Layer.plain(2); Layer().plain(2)\n"
        "print(Own.made(3), Layer.made(3), library.several(1, 2), Layer.forward.__name__)\n",
        *(f"library:{name}" for name in ("Layer.forward", "Layer.plain", "Layer.made", "several")),
    )
    assert run.done.stdout == "Own Layer (1, 2) forward\n"
    assert run.counts() == {
        "Layer.forward(<__main__.Own>, 1)": 1,
        "Layer.forward(<library.Layer>, 1)": 1,
        "Layer.plain(2)": 2,
        "Layer.made(<builtins.type>, 3)": 2,
        "several(1, 2)": 1,
    }


def test_nested_and_failing_calls(capture: Capturing) -> None:
    run = capture(
        "from library import down, fail\ndown(2)\n"
        "for _ in range(3):\n    try: fail(1)\n    except ValueError: pass\n",
        "library:down", "library:fail",
    )  # fmt: skip
    assert run.counts() == {"down(0)": 1, "down(1)": 1, "down(2)": 1, "fail(1) ValueError": 3}


def test_lists_are_kept_and_long_values_are_not(capture: Capturing) -> None:
    run = capture(
        "from library import scale\n"
        "scale([1, (2.5, None)]); scale('secret ' * 20); scale(list(range(1000)))\n"
        "scale({'a secret': 1}); scale({('secret',): 1}); scale({1: 0, 'secret' * 20: 1}); scale(b'secret')\n"
        "scale(float('nan')); scale(float('nan')); scale(float('inf')); scale(0.0); scale(-0.0)\n",
        "library:scale",
    )
    values = [call.arguments[0].value for call in run.capture.calls]
    (kept,) = (value for value in values if isinstance(value, CapturedList))
    assert run.capture.calls[values.index(kept)].values()["x[1][0]"] == CapturedScalar(type="float", value=2.5)
    assert {v.type for v in values if isinstance(v, CapturedOther)} == {
        "long str", "long list", "builtins.dict", "builtins.bytes",
    }  # fmt: skip
    assert "secret" not in run.file.read_text()
    floats = [(str(v.value), c.count) for v, c in zip(values, run.capture.calls, strict=True) if v.kind == "scalar"]
    assert set(floats) == {("nan", 2), ("inf", 1), ("0.0", 1), ("-0.0", 1)}


def test_dicts_are_kept_by_their_names_in_any_order(capture: Capturing) -> None:
    run = capture(
        "from library import scale\n"
        "scale({'gain': 2.5, 'shift.first': [1]}); scale({'shift.first': [1], 'gain': 2.5})\n"
        "scale({1: True}); scale({1: 1, '1': 2}); scale({n: n for n in range(1000)})\n"
        "scale({'a': {'b': {'c': {'d': 1}}}})\n",
        "library:scale",
    )
    calls = run.capture.calls
    (both,) = (call for call in calls if "x[gain]" in call.values())
    assert both.values()["x[gain]"] == CapturedScalar(type="float", value=2.5)
    assert both.values()["x[shift.first][0]"] == CapturedScalar(type="int", value=1)
    assert both.count == 2, "in either order"
    computed = {"gain": CapturedOther(type="float"), "shift.first": CapturedList(items=(CapturedOther(type="int"),))}
    assert both.returns == CapturedDict(items=computed), "what came back may be computed"
    (other,) = (call for call in calls if first(call) == CapturedOther(type="builtins.dict"))
    assert other.count == 2, "one with a name twice, one that is long"
    (deep,) = (call for call in calls if "x[a][b][c]" in call.values())
    assert deep.values()["x[a][b][c]"] == CapturedOther(type="builtins.dict")
    (numbered,) = (call for call in run.capture.calls if "x[1]" in call.values())
    assert numbered.values()["x[1]"] == CapturedScalar(type="bool", value=True)


def test_no_value_ends_the_program(capture: Capturing) -> None:
    """Classes may lie about their type, and numbers may have no text. The program and the capture go on."""
    run = capture(
        "from library import guarded, scale, Locked\nfrom unittest.mock import MagicMock\n"
        "guarded(1); scale(Locked(a=1)); scale(MagicMock(spec=dict)); scale(MagicMock(spec=list))\n"
        "scale(10**5000); scale({'n': 10**5000}); scale({10**5000: 1}); scale(2**63 - 1)\n"
        "scale({n: n for n in range(10**6)})\n"
        "own = {}\nown.update((f'k{n}', own) for n in range(16))\nscale(own)\nprint('done')\n",
        "library:scale",
        "library:guarded",
    )
    assert run.done.stdout == "done\n" and run.done.returncode == 0, run.done.stderr
    kept = [first(call) for call in run.capture.of("library:scale")]
    assert CapturedScalar(type="int", value=2**63 - 1) in kept and CapturedOther(type="long int") in kept
    assert CapturedDict(items={"n": CapturedOther(type="long int")}) in kept
    assert CapturedDict(items={"a": CapturedScalar(type="int", value=1)}) in kept, "as dict itself has it"
    assert CapturedOther(type="unittest.mock.MagicMock") in kept, "whatever it says of itself"
    (guarded,) = run.capture.of("library:guarded")
    assert "places" not in guarded.values(), "a default that cannot be looked at"
    assert guarded.values()["options[rate]"] == CapturedScalar(type="int", value=1)


def test_a_call_that_cannot_be_recorded_is_reported(tmp_path: Path) -> None:
    target = CaptureTarget("library:scale", 0)
    recorder = Recorder(str(tmp_path), [target.name])
    # A list, which cannot be a key of a dict.
    recorder.record(target, Parameters(["x"]), [("scalar", "int", [])], {}, None, None)
    recorder.record(target, Parameters(["x"]), [("scalar", "int", 1)], {}, None, None)
    (lines,) = tmp_path.glob("*.lines")
    assert "library:scale: a call could not be recorded: TypeError: unhashable" in lines.read_text()
    assert '"slot"' in lines.read_text(), "the next one is"


def first(call: CapturedCall) -> object:
    return call.arguments[0].value


def test_a_cached_function_is_recorded_and_keeps_its_cache(capture: Capturing) -> None:
    run = capture(
        "import library\nprint(library.cached(2), library.cached(2), library.cached.cache_info().hits)\n"
        "print(library.cached.__wrapped__(3), library.cached.cache_info().misses)\n"
        "library.cached.cache_clear()\nprint(library.cached.cache_info().hits)\n",
        "library:cached",
    )
    assert run.done.stdout == "4 4 1\n6 1\n0\n", "what it wraps goes past the cache"
    assert run.counts() == {"cached(2)": 2}


def test_results_of_calls_are_not_recorded(capture: Capturing) -> None:
    run = capture("from library import several\nseveral(1, 2.5)\n", "library:several")
    assert run.capture.calls[0].returns == CapturedList(items=(CapturedOther(type="int"), CapturedOther(type="float")))


def test_threads_lose_no_call(capture: Capturing) -> None:
    run = capture(
        "import sys, threading\nfrom library import scale\nsys.setswitchinterval(1e-6)\n"
        "def work(n):\n    for i in range(500): scale(i % 7)\n"
        "threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]\n"
        "for t in threads: t.start()\n"
        "for t in threads: t.join()\n",
        "library:scale",
    )
    assert sum(run.counts().values()) == 4000
    assert len(run.counts()) == 7


def test_scalars_with_ever_new_values_are_bounded_and_counted(capture: Capturing) -> None:
    run = capture(
        "from library import scale, several\nfor i in range(1500): scale(i)\nseveral(1)\n",
        "library:scale", "library:several",
    )  # fmt: skip
    assert len(run.capture.of("library:scale")) == 1024
    assert run.capture.header.not_kept == {"library:scale": 1500 - 1024}
    assert run.capture.counts == {"library:scale": 1500, "library:several": 1}
    assert "476 call(s) of further signatures were only counted" in run.done.stderr


LAZY = """
from library import Layer, scale

def __getattr__(name):
    if name == "kept":
        globals()[name] = scale
    elif name == "Lazy":
        return Layer
    elif name != "fresh":
        raise AttributeError(name)
    return scale
"""
LAZY_CLASS = """
import sys, types, library

class Lazy(types.ModuleType):
    def __getattr__(self, name):
        if name != "scale":
            raise AttributeError(name)
        self.scale = library.scale
        return library.scale

sys.modules[__name__] = Lazy(__name__)
"""


def test_functions_that_a_module_makes_on_demand(capture: Capturing) -> None:
    run = capture(
        "import library, lazy, lazier\nfrom lazy import kept\n"
        "kept(1); lazy.kept(1)\n"
        "lazy.fresh(2); lazy.fresh(2); print(lazy.fresh is lazy.fresh)\n"
        "lazy.Lazy().forward(3)\n"
        "lazier.scale(4); lazier.scale(4)\n"
        "library.scale(5)\n"
        "print([hasattr(m, 'nothing') for m in (lazy, lazier)])\n",
        *("lazy:kept", "lazy:fresh", "lazy:Lazy.forward", "lazier:scale", "lazy:nothing"),
        prepare={"lazy.py": LAZY, "lazier.py": LAZY_CLASS},
    )
    assert run.done.stdout == "True\n[False, False]\n", run.done.stderr
    assert run.counts() == {
        "kept(1, 2.0, None)": 2,
        "fresh(2, 2.0, None)": 2,
        "Lazy.forward(<library.Layer>, 3)": 1,
        "scale(4, 2.0, None)": 2,
    }
    assert "lazy:nothing: was never imported" in run.done.stderr


def test_a_function_under_two_names_is_recorded_under_both(capture: Capturing) -> None:
    run = capture(
        "import library, other\nlibrary.scale(1); other.scale(2)\n",
        "library:scale", "other:scale",
        prepare={"other.py": "from library import scale\n"},
    )  # fmt: skip
    assert run.capture.counts == {"library:scale": 2, "other:scale": 1}


def test_a_function_that_cannot_be_watched_is_named(capture: Capturing) -> None:
    run = capture(
        "import library, asyncio\nlibrary.Layer()\nprint(asyncio.run(library.later(1)))\n",
        *(f"library:{name}" for name in ("Layer", "constant", "nothing", "scal", "later", "Layer.rate", "scale")),
        "elsewhere.module:function",
    )
    assert run.done.stdout == "1\n"
    assert "library:Layer: was never imported" not in run.done.stderr, "it was, and what it is is said"
    for said in (
        "library:Layer: is a type, not a function",
        "library:constant: is a int, not a function",
        "library:nothing: library has no nothing when its import ends",
        "did you mean scale?",
        "library:later: is asynchronous",
        "library:Layer.rate: is a int, not a function",
        "library:scale: was found, but never called",
        "elsewhere.module:function: was never imported",
    ):
        assert said in run.done.stderr
    assert run.capture.calls == ()


def test_the_program_sees_no_foreign_modules(capture: Capturing) -> None:
    run = capture(
        "import sys\nimport library\nlibrary.scale(1)\n"
        "print([m for m in ('torch', 'pydantic', 'typer', 'kernwright', 'sitecustomize') if m in sys.modules])\n"
        "loader = library.__loader__\n"
        "print([p for p in sys.path if 'inject' in p], type(loader).__name__, vars(loader).keys())\n",
        "library:scale",
    )
    assert run.done.stdout == "[]\n[] SourceFileLoader dict_keys(['name', 'path'])\n"
    assert run.capture.header.torch == ()


def test_a_recorded_function_called_from_a_destructor_or_signal_handler_does_not_hang(capture: Capturing) -> None:
    run = capture(
        "import signal\nfrom library import scale\n"
        "signal.signal(signal.SIGALRM, lambda *_: scale('handler'))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)\n"
        "for i in range(20000): scale(i % 50)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0)\nprint('done')\n",
        "library:scale",
    )
    assert run.done.stdout == "done\n"
    assert sum(n for name, n in run.counts().items() if "handler" not in name) == 20000
