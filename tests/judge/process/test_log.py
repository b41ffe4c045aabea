"""The last output of a worker explains its end."""

from __future__ import annotations

import os
import signal

import pytest

from kernwright.judge.process.log import MOST_READ, MOST_SHOWN, WorkerLog


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ("", ""),
        ("one\ntwo\n\n", "two"),
        ("terminate called\n  what(): broken\nException raised from here\nframe #0: main\n", "what(): broken"),
        ("frame #0: nothing but addresses\n", ""),
        ("bell \x07 rings\n", "bell ? rings"),
        ("x" * 2 * MOST_READ + "\nthe end", "the end"),
    ],
)  # fmt: skip
def test_the_last_words_are_the_last_line_with_text(printed: str, words: str) -> None:
    log = WorkerLog()
    os.write(log.descriptor, printed.encode())
    assert log.last_words() == words
    log.close()
    assert log.last_words() == ""


@pytest.mark.parametrize("printed", ["", "one\ntwo", "a" * 3 * MOST_SHOWN + "the end"])
def test_a_reader_gets_the_output_once_and_never_much_of_it(printed: str) -> None:
    heard: list[str] = []
    log = WorkerLog(heard.append)
    os.write(log.descriptor, printed.encode())
    log.close()
    log.close()
    (text,) = heard
    assert text == printed or (text[:9] == printed[:9] and text.endswith("the end") and "bytes left out" in text)
    assert len(text) < 2 * MOST_SHOWN + 100


def test_the_post_mortem_names_the_signal_or_the_status_and_the_words() -> None:
    log = WorkerLog()
    assert log.post_mortem(3) == "crashed: exited with status 3"
    os.write(log.descriptor, b"no such luck\n")
    assert log.post_mortem(-signal.SIGSEGV) == "crashed: killed by SIGSEGV (no such luck)"
    log.close()


def test_a_machine_out_of_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    log = WorkerLog()
    assert "out of memory" not in log.post_mortem(-signal.SIGKILL)
    monkeypatch.setattr("kernwright.judge.process.log._kills_for_memory", lambda: 10**9)
    assert "out of memory" in log.post_mortem(-signal.SIGKILL)
    log.close()
