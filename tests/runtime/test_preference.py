"""Whose wish counts: the block's before the program's before the environment's, and each thread's block its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import kernwright
from kernwright.core.errors import KernwrightError
from kernwright.runtime import preference
from kernwright.runtime.preference import is_strict, preferred

KEPT: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_preferred(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(preference.BACKEND_VARIABLE, raising=False)
    monkeypatch.delenv(preference.STRICT_VARIABLE, raising=False)
    preference.forget()
    yield
    preference.forget()


def test_nothing_is_preferred_at_first() -> None:
    assert preferred() is None and not is_strict()


def test_a_call_holds_for_the_program_and_in_other_threads() -> None:
    kernwright.prefer("triton")
    kernwright.strict()
    seen: list[object] = []
    thread = threading.Thread(target=lambda: seen.extend([preferred(), is_strict()]))
    thread.start()
    thread.join()
    assert [preferred(), is_strict()] == seen == ["triton", True]


def test_a_block_holds_inside_it_and_in_its_thread_alone() -> None:
    kernwright.prefer("cpu")
    seen: list[object] = []
    with kernwright.prefer("triton"):
        assert preferred() == "triton"
        thread = threading.Thread(target=lambda: seen.append(preferred()))
        thread.start()
        thread.join()
        with kernwright.prefer(None):
            assert preferred() is None
        assert preferred() == "triton"
    assert preferred() == "cpu" and seen == ["cpu"]


def test_a_call_need_not_ask_where_nobody_prefers_anything() -> None:
    assert preference.preferences, "the environment was not read yet"
    assert preferred() is None and not preference.preferences
    with kernwright.prefer("triton"):
        preference.forget()
        assert preferred() == "triton" and preference.preferences
    assert preferred() is None and not preference.preferences
    kernwright.prefer("cpu")
    assert preference.preferences


def seen_elsewhere(what: Callable[[], Any]) -> Any:
    """By another thread."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(what).result(timeout=30)


@pytest.mark.parametrize(
    ("made", "asked", "value"),
    [(lambda: kernwright.prefer("triton"), preferred, "triton"), (kernwright.strict, is_strict, True)],
)
def test_a_block_is_never_another_threads_not_even_before_it_is_entered(
    made: Callable[[], Any], asked: Callable[[], Any], value: Any
) -> None:
    before = asked()
    block = made()
    assert seen_elsewhere(asked) is before
    with block:
        assert asked() is value and seen_elsewhere(asked) is before
    assert asked() is before and seen_elsewhere(asked) is before


@pytest.mark.parametrize(
    "goes_on", [preferred, lambda: kernwright.prefer("torch"), lambda: repr(KEPT[-1]), lambda: KEPT.pop()]
)
def test_what_became_no_block_holds_in_other_threads_too(goes_on: Callable[[], Any]) -> None:
    KEPT[:] = [kernwright.prefer("triton")]
    assert seen_elsewhere(preferred) is None, "it may be a block yet"
    goes_on()
    assert seen_elsewhere(preferred) == ("torch" if preferred() == "torch" else "triton")


def test_of_what_is_said_for_the_program_the_latest_counts() -> None:
    first = kernwright.prefer("cpu")
    kernwright.prefer("triton")
    assert preferred() == seen_elsewhere(preferred) == "triton"
    with first:
        assert preferred() == "cpu"
    del first
    assert preferred() == "triton"


def test_a_block_can_be_entered_again_and_in_itself() -> None:
    block, careful = kernwright.prefer("triton"), kernwright.strict()
    for _ in range(2):
        with block, careful:
            with kernwright.prefer("cpu"), block, careful:
                assert preferred() == "triton" and preference.preferences and is_strict()
            assert preferred() == "triton" and preference.preferences and is_strict()
        assert preferred() is None and not preference.preferences and not is_strict()


def test_a_block_can_be_entered_by_several_threads_at_once() -> None:
    block, entered = kernwright.prefer("triton"), threading.Barrier(3, timeout=30)

    def run(_: int) -> object:
        with block:
            entered.wait()
            return preferred()

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(run, range(3))) == ["triton"] * 3
    assert preferred() is None and not preference.preferences


def test_as_a_decorator_it_is_a_block_around_every_call() -> None:
    @kernwright.prefer("triton")
    @kernwright.strict()
    def asked(depth: int) -> list[object]:
        return [preferred(), is_strict(), *(asked(depth - 1) if depth else [])]

    assert preferred() is None and not is_strict()
    assert asked(1) == asked(1) == ["triton", True] * 2
    assert preferred() is None and not preference.preferences and not is_strict()


def test_a_decorator_of_what_runs_later_is_an_error_and_leaves_nothing() -> None:
    def later() -> Iterator[int]:
        yield 1

    async def awaited() -> None: ...

    for function in (later, awaited):
        with pytest.raises(KernwrightError, match=r"write `with kernwright.prefer\('triton'\):` inside of it"):
            kernwright.prefer("triton")(function)
    assert preferred() is None


def test_a_block_is_left_by_an_error_too() -> None:
    with pytest.raises(RuntimeError), kernwright.prefer("triton"), kernwright.strict():
        raise RuntimeError
    assert preferred() is None and not is_strict()


def test_blocks_of_two_threads_do_not_undo_each_other() -> None:
    both_made, entered = threading.Barrier(2, timeout=30), threading.Barrier(2, timeout=30)
    seen: dict[str, object] = {}

    def run(backend: preference.Backend) -> None:
        block = kernwright.prefer(backend)
        both_made.wait()
        with block:
            entered.wait()
            seen[backend] = preferred()

    threads = [threading.Thread(target=run, args=(backend,)) for backend in ("cpu", "triton")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {"cpu": "cpu", "triton": "triton"} and preferred() is None


def test_the_environment_is_asked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(preference.BACKEND_VARIABLE, "torch")
    monkeypatch.setenv(preference.STRICT_VARIABLE, "1")
    preference.forget()
    assert preferred() == "torch" and is_strict()
    with kernwright.prefer("cpu"), kernwright.strict(False):
        assert preferred() == "cpu" and not is_strict()


@pytest.mark.parametrize(
    ("word", "on"),
    [("1", True), ("true", True), ("ON", True), ("", False), ("0", False), ("false", False), ("off", False)],
)
def test_strict_from_outside_is_on_or_off(word: str, on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(preference.STRICT_VARIABLE, word)
    preference.forget()
    assert is_strict() is on


def test_strict_that_is_neither_is_named_with_where_it_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(preference.STRICT_VARIABLE, "ture")
    preference.forget()
    with pytest.raises(KernwrightError, match=r"KERNWRIGHT_STRICT: 'ture' is neither on nor off\n.*: 1, true"):
        is_strict()


def test_a_backend_that_is_none_is_named_with_where_it_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KernwrightError, match="there is no backend 'cutlass'"):
        kernwright.prefer("cutlass")  # type: ignore[arg-type]
    monkeypatch.setenv(preference.BACKEND_VARIABLE, "rocm")
    preference.forget()
    with pytest.raises(KernwrightError, match="KERNWRIGHT_BACKEND: there is no backend 'rocm'"):
        preferred()
