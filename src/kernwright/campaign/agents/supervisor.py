"""Supervisor: a small process between `kernwright campaign` and an agent. No process of the agent outlives it.

It is started as `python -P -m kernwright.campaign.agents.supervisor ORDERS`. Orphans of the agent become its children,
also daemons that left the session. It ends all of them when the agent ends, on SIGTERM, and when the process that
started it is killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress
from types import FrameType

from kernwright.campaign.agents.walls import Walls
from kernwright.diagnose.program_run.process_tree import adopting_orphans, reap_orphans, running_descendants, signal_all
from kernwright.judge.system.landlock import LandlockUnavailable
from kernwright.judge.system.linux import PR_SET_PDEATHSIG, prctl

GRACE_S = 2.0  # between the request to end and the kill
_POLL_S = 0.05


def supervise(orders: dict[str, object]) -> int:
    """Run the agent, and end everything that it started. Return its exit status; 128 and more is a signal."""
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        asked.append(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, ask)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != orders["parent"]:
        return 128 + signal.SIGTERM
    with adopting_orphans():
        agent = os.fork()
        if agent == 0:
            _become_agent(orders)
        status: int | None = None
        while status is None and not asked:
            time.sleep(_POLL_S)
            status = _collected(agent)
        found = _end_all(agent)
        status = found if status is None else status
    return 128 + signal.SIGKILL if status is None else status


def _collected(agent: int) -> int | None:
    """Collect what has ended. Return the agent's exit status if it has one."""
    with suppress(ChildProcessError):
        pid, wait_status = os.waitpid(agent, os.WNOHANG)
        if pid == agent:
            code = os.waitstatus_to_exitcode(wait_status)
            return code if code >= 0 else 128 - code
    reap_orphans(frozenset([agent]))
    return None


def _end_all(agent: int) -> int | None:
    """End all descendants: ask, then kill. Return the agent's exit status if it ended here."""
    status: int | None = None
    kill_at = time.monotonic() + GRACE_S
    signal_all(running_descendants(os.getpid()), signal.SIGTERM)
    while running := running_descendants(os.getpid()):
        if time.monotonic() >= kill_at:
            signal_all(running, signal.SIGKILL)
        time.sleep(0.01)
        found = _collected(agent)
        status = found if status is None else status
    found = _collected(agent)
    return found if status is None else status


def _become_agent(orders: dict[str, object]) -> None:
    """Put up the walls and execute the agent's program. Does not return."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        if orders["walls"] is not None:
            for missing in Walls.from_argument(str(orders["walls"])).put_up():
                print(f"kernwright: this machine lacks {missing}", file=sys.stderr, flush=True)
        os.chdir(str(orders["folder"]))
        command = orders["command"]
        assert isinstance(command, list)
        os.execvp(command[0], command)
    except (OSError, LandlockUnavailable) as error:
        print(f"kernwright: the agent cannot start: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(127)


if __name__ == "__main__":
    sys.exit(supervise(json.loads(sys.argv[1])))
