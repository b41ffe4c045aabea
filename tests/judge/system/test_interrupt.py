"""A request to stop that cannot get lost."""

from __future__ import annotations

import os
import signal

import pytest

from kernwright.judge.system.interrupt import Interrupt


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_request_that_python_forgets_is_kept() -> None:
    class Forgetful:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000):  # here the interpreter raises it where it can only be printed
                pass

    interrupt = Interrupt()
    with interrupt.listening():
        try:
            del_me = Forgetful()
            del del_me
        except KeyboardInterrupt:
            pytest.fail("a destructor's interrupt came through: the test shows nothing")
        assert interrupt.asked
        with pytest.raises(KeyboardInterrupt):
            interrupt.heed()


def test_the_previous_handler_is_restored() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupt().listening():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before


def test_without_a_request_nothing_happens() -> None:
    interrupt = Interrupt()
    with interrupt.listening():
        interrupt.heed()
    assert not interrupt.asked
