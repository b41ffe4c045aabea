"""The program of one judgement: reads a request from standard input, writes progress and the result as JSON lines.

Each judgement is a process of its own, so that one that crashes does not end the server. It ends like after Ctrl-C when
its standard input is closed: the rows that were finished are recorded, and all workers end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any, TextIO

STOP_DEADLINE_S = 20.0  # after this long, a judgement that was asked to stop is killed


class JsonProgress:
    """Writes the judge's progress as JSON lines."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def phase(self, what: str, steps: int) -> None:
        self.write({"phase": what, "steps": steps})

    def step(self, note: str) -> None:
        self.write({"step": note})

    def write(self, line: dict[str, Any]) -> None:
        self._out.write(json.dumps(line) + "\n")
        self._out.flush()


def main() -> None:
    """Carry out the request on the first line of standard input."""
    # A server that was started in the background ignores SIGINT, and its children inherit this.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keeps the output of libraries apart from the lines of the result
    progress = JsonProgress(out)
    request = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_stop_at_end_of_input, name="kernwright-stop", daemon=True).start()
    try:
        progress.write(_judged(request, progress))
    except KeyboardInterrupt:
        progress.write({"interrupted": True})
    except BrokenPipeError:
        sys.exit(1)


def _judged(form: dict[str, Any], progress: JsonProgress) -> dict[str, Any]:
    from kernwright.core.errors import KernwrightError
    from kernwright.service.client import quick_judge
    from kernwright.service.request_form import from_form

    request = from_form(form)
    try:
        if request.quick:  # a running `kernwright judge --serve` answers at once
            return {"run": quick_judge(request, progress).verdict.run}
        from kernwright.judge.request import judge

        return {"run": judge(request, progress).run}
    except KernwrightError as error:
        return {"cause": error.cause, "remedy": error.remedy}


def _stop_at_end_of_input() -> None:
    """Interrupt the judgement when the server closes standard input, or ends."""
    while sys.stdin.buffer.read(4096):
        pass
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(STOP_DEADLINE_S)
    end_process_and_descendants()


def end_process_and_descendants() -> None:
    """Kill this process and everything below it."""
    from kernwright.diagnose.program_run.process_tree import running_descendants, signal_all

    signal_all(running_descendants(os.getpid()), signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main()
