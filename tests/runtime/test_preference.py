"""Preferences: a block takes precedence over the program, and the program over the environment. Blocks belong to a
thread."""

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


@pytest.fixture(autouse=True)
def nothing_preferred(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(preference.BACKEND_VARIABLE, raising=False)
    monkeypatch.delenv(preference.STRICT_VARIABLE, raising=False)
    preference.reset()
    yield
    preference.reset()


def test_nothing_is_preferred_at_first() -> None:
    assert preferred() is None and not is_strict()


def test_a_call_holds_for_the_program_and_in_other_threads() -> None:
    kernwright.prefer("triton", strict=True)
    seen: list[object] = []
    thread = threading.Thread(target=lambda: seen.extend([preferred(), is_strict()]))
    thread.start()
    thread.join()
    assert [preferred(), is_strict()] == seen == ["triton", True]


def test_a_block_holds_inside_it_and_in_its_thread_alone() -> None:
    kernwright.prefer("cpu")
    seen: list[object] = []
    with kernwright.preferring("triton"):
        assert preferred() == "triton"
        thread = threading.Thread(target=lambda: seen.append(preferred()))
        thread.start()
        thread.join()
        with kernwright.preferring("best"):
            assert preferred() is None
        assert preferred() == "triton"
    assert preferred() == "cpu" and seen == ["cpu"]


def test_without_any_preference_a_call_need_not_ask() -> None:
    assert preference.active, "the environment was not read yet"
    assert preferred() is None and not preference.active
    with kernwright.preferring("triton"):
        preference.reset()
        assert preferred() == "triton" and preference.active
    assert preferred() is None and not preference.active
    kernwright.prefer("cpu")
    assert preference.active


def seen_elsewhere(what: Callable[[], Any]) -> Any:
    """Return the preference that another thread sees."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(what).result(timeout=30)


def test_the_latest_setting_of_the_program_counts_in_every_thread() -> None:
    kernwright.prefer("cpu")
    kernwright.prefer("triton")
    assert preferred() == seen_elsewhere(preferred) == "triton"
    kernwright.prefer(strict=True)
    assert preferred() == "triton" and is_strict(), "None leaves a setting as it is"
    kernwright.prefer("best")
    assert preferred() is None and is_strict()


def test_a_statement_cannot_be_mistaken_for_a_block() -> None:
    with pytest.raises(TypeError), kernwright.prefer("triton"):  # type: ignore[attr-defined]
        pass


def test_a_block_can_be_entered_again_and_in_itself() -> None:
    block, careful = kernwright.preferring("triton"), kernwright.preferring(strict=True)
    for _ in range(2):
        with block, careful:
            with kernwright.preferring("cpu"), block, careful:
                assert preferred() == "triton" and preference.active and is_strict()
            assert preferred() == "triton" and preference.active and is_strict()
        assert preferred() is None and not preference.active and not is_strict()


def test_a_block_can_be_entered_by_several_threads_at_once() -> None:
    block, entered = kernwright.preferring("triton"), threading.Barrier(3, timeout=30)

    def run(_: int) -> object:
        with block:
            entered.wait()
            return preferred()

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(run, range(3))) == ["triton"] * 3
    assert preferred() is None and not preference.active


def test_as_a_decorator_it_is_a_block_around_every_call() -> None:
    @kernwright.preferring("triton")
    @kernwright.preferring(strict=True)
    def asked(depth: int) -> list[object]:
        return [preferred(), is_strict(), *(asked(depth - 1) if depth else [])]

    assert preferred() is None and not is_strict()
    assert asked(1) == asked(1) == ["triton", True] * 2
    assert preferred() is None and not preference.active and not is_strict()


def test_decorating_a_generator_is_an_error_without_effect() -> None:
    def later() -> Iterator[int]:
        yield 1

    async def awaited() -> None: ...

    for function in (later, awaited):
        with pytest.raises(KernwrightError, match="cannot decorate"):
            kernwright.preferring("triton")(function)
    assert preferred() is None


def test_an_error_ends_a_block_too() -> None:
    with pytest.raises(RuntimeError), kernwright.preferring("triton"), kernwright.preferring(strict=True):
        raise RuntimeError
    assert preferred() is None and not is_strict()


def test_blocks_of_two_threads_do_not_undo_each_other() -> None:
    both_made, entered = threading.Barrier(2, timeout=30), threading.Barrier(2, timeout=30)
    seen: dict[str, object] = {}

    def run(backend: preference.Backend) -> None:
        block = kernwright.preferring(backend)
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


def test_the_environment_has_the_lowest_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(preference.BACKEND_VARIABLE, "torch")
    monkeypatch.setenv(preference.STRICT_VARIABLE, "1")
    preference.reset()
    assert preferred() == "torch" and is_strict()
    with kernwright.preferring("cpu"), kernwright.preferring(strict=False):
        assert preferred() == "cpu" and not is_strict()


@pytest.mark.parametrize(
    ("word", "on"),
    [("1", True), ("true", True), ("ON", True), ("", False), ("0", False), ("false", False), ("off", False)],
)
def test_strict_from_outside_is_on_or_off(word: str, on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(preference.STRICT_VARIABLE, word)
    preference.reset()
    assert is_strict() is on


def test_an_invalid_strict_is_named_with_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(preference.STRICT_VARIABLE, "ture")
    preference.reset()
    with pytest.raises(KernwrightError, match=r"KERNWRIGHT_STRICT: 'ture' is neither on nor off\n.*'1', 'true'"):
        is_strict()


def test_an_invalid_backend_is_named_with_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    for named in (kernwright.prefer, kernwright.preferring):
        with pytest.raises(KernwrightError, match="there is no backend 'cutlass'"):
            named("cutlass")  # type: ignore[operator]
    monkeypatch.setenv(preference.BACKEND_VARIABLE, "rocm")
    preference.reset()
    with pytest.raises(KernwrightError, match="KERNWRIGHT_BACKEND: there is no backend 'rocm'"):
        preferred()
