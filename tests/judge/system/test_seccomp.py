"""The seccomp filter as a program: a naive interpreter runs it for both architectures, and its numbers match the
headers."""

from __future__ import annotations

import errno
import platform
import re
import shutil
import subprocess

import pytest

from kernwright.judge.system.seccomp import (
    ARCHITECTURES,
    CLONE,
    CLONE3,
    FCNTL,
    FREQUENT,
    PRCTL,
    PRLIMIT,
    REFUSED,
    SET_AFFINITY,
    SOCKET,
    Instruction,
    build_filter,
    build_pin,
)

ALLOW, KILL = 0x7FFF0000, 0x80000000
REFUSE, NO_SUCH_CALL = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS


def interpret(program: list[Instruction], architecture: int, number: int, argument: int = 0, second: int = 0) -> int:
    """Return what the kernel does with such a program, executed instruction by instruction."""
    memory = {0: number, 4: architecture, 16: argument & 0xFFFFFFFF, 24: second & 0xFFFFFFFF}
    held = place = 0
    while True:
        code, when, otherwise, value = program[place]
        place += 1
        if code == 0x06:
            return value
        if code == 0x20:
            held = memory[value]
        else:
            holds = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
            place += when if holds else otherwise


@pytest.fixture(params=sorted(ARCHITECTURES))
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_number_is_answered_by_the_table(machine: str) -> None:
    column, architecture = ARCHITECTURES[machine]
    program = build_filter(machine, unix_sockets=False)
    refused = {numbers[column] for numbers in REFUSED.values()}
    for number in range(600):
        if number in (SOCKET[column], CLONE[column], CLONE3[column], PRLIMIT[column]):
            continue
        assert interpret(program, architecture, number) == (REFUSE if number in refused else ALLOW), number
    assert (refused & {numbers[column] for numbers in FREQUENT.values()}) <= {None}


def test_another_architectures_calls_end_the_process(machine: str) -> None:
    program = build_filter(machine, unix_sockets=False)
    assert interpret(program, 0x40000003, 1) == KILL  # numbers of 32-bit x86
    if machine == "x86_64":
        assert interpret(program, ARCHITECTURES[machine][1], 0x40000000 | 1) == REFUSE


@pytest.mark.parametrize(("family", "local", "answer"), [(1, True, ALLOW), (1, False, REFUSE), (2, True, REFUSE)])
def test_sockets(machine: str, family: int, local: bool, answer: int) -> None:
    column, architecture = ARCHITECTURES[machine]
    assert interpret(build_filter(machine, local), architecture, SOCKET[column], family) == answer


def test_threads_and_forks_pass_and_namespaces_do_not(machine: str) -> None:
    column, architecture = ARCHITECTURES[machine]
    program = build_filter(machine, unix_sockets=False)
    thread, fork = 0x003D0F00, 17
    assert interpret(program, architecture, CLONE[column], thread) == ALLOW
    assert interpret(program, architecture, CLONE[column], fork) == ALLOW
    for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert interpret(program, architecture, CLONE[column], fork | flag) == REFUSE
    assert interpret(program, architecture, CLONE3[column]) == NO_SUCH_CALL


def test_limits_of_others_are_not_touched(machine: str) -> None:
    column, architecture = ARCHITECTURES[machine]
    program = build_filter(machine, unix_sockets=False)
    assert interpret(program, architecture, PRLIMIT[column], 0) == ALLOW
    assert interpret(program, architecture, PRLIMIT[column], 4242) == REFUSE


def test_no_signal_is_ordered_for_later(machine: str) -> None:
    column, architecture = ARCHITECTURES[machine]
    program = build_filter(machine, unix_sockets=False)
    get_flags, set_signal, set_name, set_death = 3, 10, 15, 1
    assert interpret(program, architecture, FCNTL[column], 5, get_flags) == ALLOW
    assert interpret(program, architecture, FCNTL[column], 5, set_signal) == REFUSE
    assert interpret(program, architecture, PRCTL[column], set_name, 0) == ALLOW
    assert interpret(program, architecture, PRCTL[column], set_death, 9) == ALLOW
    for signal in (0, 18):
        assert interpret(program, architecture, PRCTL[column], set_death, signal) == REFUSE


def test_a_pinned_thread_stays_where_it_is(machine: str) -> None:
    column, architecture = ARCHITECTURES[machine]
    program = build_pin(machine)
    answers = {number: interpret(program, architecture, number) for number in range(600)}
    assert [number for number, answer in answers.items() if answer != ALLOW] == [SET_AFFINITY[column]]
    assert interpret(program, 0x40000003, 1) == KILL
    roaming = build_pin(machine, refuses=False)
    assert len(roaming) == len(program), "no side's calls pass through less"
    assert all(interpret(roaming, architecture, number) == ALLOW for number in range(600))


@pytest.mark.skipif(platform.machine() not in ARCHITECTURES, reason="no table for this machine")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no compiler to read the headers with")
def test_the_table_is_the_systems_own() -> None:
    column, _ = ARCHITECTURES[platform.machine()]
    done = subprocess.run(
        ["gcc", "-E", "-dM", "-"], input="#include <sys/syscall.h>\n", capture_output=True, text=True, check=True
    )
    known = {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)\b", done.stdout)}
    tables = (
        FREQUENT
        | REFUSED
        | {
            "socket": SOCKET,
            "clone": CLONE,
            "clone3": CLONE3,
            "prlimit64": PRLIMIT,
            "sched_setaffinity": SET_AFFINITY,
            "fcntl": FCNTL,
            "prctl": PRCTL,
        }
    )
    ours = {name: numbers[column] for name, numbers in tables.items()}
    assert len(known) > 200
    assert {name: known[name] for name in ours if name in known} == {
        name: n for name, n in ours.items() if name in known
    }
    assert not {name for name, number in ours.items() if number is None} & set(known)
