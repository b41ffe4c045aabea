"""Confinement of a worker: it restricts itself before it imports foreign code, and reports what was possible.

This happens at the start, while the process has one thread: landlock binds the calling thread and threads that it
starts later, and libraries start threads.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from kernwright.judge.protocol.isolation import Isolation
from kernwright.judge.system.landlock import LandlockState, LandlockUnavailable, close_all_but
from kernwright.judge.system.limits import MOST_PROCESSES, limit_processes, limit_resources, threads_of
from kernwright.judge.system.linux import (
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    bar_capabilities,
    drop_capabilities,
    prctl,
)
from kernwright.judge.system.namespaces import leave_network, make_passable
from kernwright.judge.system.sandbox import Sandbox
from kernwright.judge.system.seccomp import SeccompUnavailable, refuse_affinity, refuse_calls


def die_with(parent: int) -> bool:
    """Ask the kernel to kill this process when its parent ends. Return whether that was possible."""
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        asked = True
    except OSError:
        asked = False
    if os.getppid() != parent:  # the judge ended before the request took effect
        os._exit(1)
    return asked


def confine(sandbox: Sandbox, parent: int) -> Isolation:
    """Apply every restriction that this machine offers. Only our code has run in this process so far."""
    prctl(PR_SET_DUMPABLE, 1)  # the zygote is not dumpable; /proc/self must belong to us again
    isolation = Isolation(limits=limit_resources())
    if (threads := len(list(Path("/proc/self/task").iterdir()))) > 1:
        isolation.missing.append(f"walls around every thread: {threads} ran before they went up")
    namespace = _leave_network(sandbox, isolation)
    bar_capabilities()
    _change_user(sandbox, isolation)
    _limit_processes(sandbox, isolation, namespace)
    _give_up_privileges(isolation)
    prctl(PR_SET_DUMPABLE, 1)  # a change of user or rights resets this, but the judge reads our memory
    isolation.dies_with_judge = die_with(parent)  # this also resets the parent-death signal
    closed = _close_files(sandbox, isolation)
    filtered = _refuse_calls(sandbox, isolation)
    _describe_network(sandbox, isolation, namespace, closed, filtered)
    return isolation


def hold_processor(sandbox: Sandbox, processor: int | None, isolation: Isolation, roams: bool = False) -> None:
    """Pin all threads to a processor, after the imports, which use all processors. New threads inherit it.

    A worker that may roam can leave the processor between blocks. The judge checks every worker after every block.
    """
    if processor is None:
        return
    try:
        move_to({processor})
    except OSError as error:
        isolation.missing.append(f"a processor of its own: {error.strerror}")
        return
    isolation.processors = f"pinned to {processor}"
    if "seccomp" not in sandbox.off:
        with contextlib.suppress(SeccompUnavailable):  # already reported; the judge checks after every block
            refuse_affinity(not roams)


def move_to(processors: set[int]) -> None:
    """Move every thread of this process, including threads that start meanwhile."""
    moved: set[str] = set()
    while left := {thread.name for thread in Path("/proc/self/task").iterdir()} - moved:
        for thread in left:
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread), processors)
        moved |= left


def _leave_network(sandbox: Sandbox, isolation: Isolation) -> str:
    if "network" in sandbox.off:
        isolation.missing.append(f"network namespace: {sandbox.off['network']}")
        return ""
    try:
        return leave_network(stays_the_same_user=sandbox.user is None)
    except OSError as error:
        isolation.missing.append(f"network namespace: {error.strerror}")
        return ""


def _change_user(sandbox: Sandbox, isolation: Isolation) -> None:
    if sandbox.user is None:
        isolation.user = f"uid {os.getuid()}, the judge's own"
        isolation.missing.append(f"a user of its own: {sandbox.why_same_user}")
        return
    if sandbox.covered:
        try:
            make_passable(sandbox.covered, sandbox.reads, [sandbox.scratch])
        except OSError as error:
            os.chown(sandbox.scratch, os.getuid(), os.getgid())  # we keep our user and need to write there
            isolation.user = f"uid {os.getuid()}, the judge's own"
            isolation.missing.append(f"a user of its own: {error.strerror}")
            return
        os.chdir(sandbox.scratch)  # the same folder, by the path that is open to us
    os.setgroups([])
    os.setresgid(sandbox.user, sandbox.user, sandbox.user)
    os.setresuid(sandbox.user, sandbox.user, sandbox.user)
    isolation.user = f"uid {sandbox.user}, used by no other process"


def _limit_processes(sandbox: Sandbox, isolation: Isolation, namespace: str) -> None:
    if "processes" in sandbox.off:
        isolation.missing.append(f"a limit on processes: {sandbox.off['processes']}")
    elif os.getuid() == 0:
        isolation.missing.append("a limit on processes: the kernel sets root none")
    elif sandbox.user is not None or namespace == "user namespace":
        limit_processes()
        isolation.processes = f"{MOST_PROCESSES}, threads included"
    else:
        limit_processes(beyond=threads_of(os.getuid()))
        isolation.processes = f"{MOST_PROCESSES} more than its user had at the start, threads included"


def _give_up_privileges(isolation: Isolation) -> None:
    try:
        drop_capabilities()
        isolation.capabilities = "none"
    except OSError as error:
        isolation.missing.append(f"dropped capabilities: {error.strerror}")
    try:
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        isolation.no_new_privileges = True
    except OSError as error:
        isolation.missing.append(f"no new privileges: {error.strerror}")


def _close_files(sandbox: Sandbox, isolation: Isolation) -> LandlockState | None:
    if os.getuid() == sandbox.user:
        isolation.file_system = "what is open to all users"
        isolation.signals = "to itself"
    try:
        if "landlock" in sandbox.off:
            raise LandlockUnavailable(sandbox.off["landlock"])
        closed = close_all_but(sandbox.opened())
    except LandlockUnavailable as reason:
        isolation.missing.append(f"landlock: {reason}")
        return None
    isolation.file_system = (
        f"writes its scratch folder; reads that, the system, Python and the side's sources (landlock {closed.version})"
    )
    if closed.signals:
        isolation.signals = "to itself"
    elif os.getuid() != sandbox.user:
        isolation.missing.append(f"a wall against signals: landlock {closed.version} has none")
    return closed


def _refuse_calls(sandbox: Sandbox, isolation: Isolation) -> bool:
    try:
        if "seccomp" in sandbox.off:
            raise SeccompUnavailable(sandbox.off["seccomp"])
        isolation.system_calls = refuse_calls(sandbox.for_gpu)  # CUDA's driver needs a local socket to start
    except SeccompUnavailable as reason:
        isolation.missing.append(f"seccomp: {reason}")
        return False
    return True


def _describe_network(
    sandbox: Sandbox, isolation: Isolation, namespace: str, closed: LandlockState | None, filtered: bool
) -> None:
    held = [f"a {namespace} of its own" if namespace == "user namespace" else "a namespace of its own"] * bool(
        namespace
    )
    held += ["no sockets but local ones" if sandbox.for_gpu else "no sockets"] * filtered
    held += ["no TCP"] * (closed is not None and closed.tcp)
    if namespace or filtered:
        isolation.network = f"none ({', '.join(held)})"
    elif held:
        isolation.network = "shared, but for TCP"
