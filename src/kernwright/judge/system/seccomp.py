"""Seccomp: a filter that refuses system calls which no kernel under judgement needs, for workers of any user.

Frequent calls are allowed first. Since Linux 5.11 the kernel caches that they are always allowed and does not run the
filter for them. `SPEC_ALLOW` keeps older kernels from slowing down a filtered process as a mitigation of Spectre.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

from kernwright.judge.system.linux import syscall

# Numbers on x86_64 and aarch64; None where the architecture has no such call.
Number = int | None
FREQUENT: dict[str, tuple[Number, Number]] = {
    "read": (0, 63), "write": (1, 64), "futex": (202, 98), "recvmsg": (47, 212), "recvfrom": (45, 207),
    "sendto": (44, 206), "poll": (7, None), "ppoll": (271, 73), "mmap": (9, 222), "munmap": (11, 215),
    "madvise": (28, 233), "ioctl": (16, 29), "sched_yield": (24, 124), "brk": (12, 214),
}  # fmt: skip
REFUSED: dict[str, tuple[Number, Number]] = {
    # other processes: memory, descriptors, limits, scheduling
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "pidfd_getfd": (438, 438),
    "perf_event_open": (298, 241), "move_pages": (279, 239), "migrate_pages": (256, 238),
    "setpriority": (141, 140), "ioprio_set": (251, 30),
    "sched_setscheduler": (144, 119), "sched_setparam": (142, 118), "sched_setattr": (314, 274),
    # signals that the kernel sends later: SIGCONT would end a stop unseen
    "timer_create": (222, 107), "mq_notify": (244, 184),
    # timers that fire while a worker is stopped: another process would pay for them
    "timerfd_create": (283, 85), "timerfd_settime": (286, 86),
    # resources that outlive the process, if there is no namespace for them
    "shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180),
    # ways around this filter or the file system restrictions
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "personality": (135, 92),
    "bpf": (321, 280), "userfaultfd": (323, 282), "fanotify_init": (300, 262),
    "setns": (308, 268), "unshare": (272, 97), "chroot": (161, 51), "pivot_root": (155, 41),
    "mount": (165, 40), "umount2": (166, 39), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442),
    # the machine: keys, clocks, modules, accounting
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "clock_settime": (227, 112), "settimeofday": (164, 170), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142), "syslog": (103, 116),
    "swapon": (167, 224), "swapoff": (168, 225), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "acct": (163, 89), "sethostname": (170, 161), "setdomainname": (171, 162), "vhangup": (153, 58),
    "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None), "uselib": (134, None),
}  # fmt: skip
SOCKET, CLONE, CLONE3, PRLIMIT = (41, 198), (56, 220), (435, 435), (302, 261)
FCNTL, PRCTL, SET_AFFINITY = (72, 25), (157, 167), (203, 122)
F_SETSIG, PR_SET_PDEATHSIG, SIGKILL = 10, 1, 9
AF_UNIX = 1
NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW* flag that clone(2) takes
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_X32 = 0x40000000
_SET_MODE_FILTER, _TSYNC, _SPEC_ALLOW = 1, 1, 4
_SECCOMP = {"x86_64": 317, "aarch64": 277}

Instruction = tuple[int, int, int, int]


class SeccompUnavailable(Exception):
    """The reason why seccomp is unavailable."""


def build_filter(machine: str, unix_sockets: bool) -> list[Instruction]:
    """Return the filter program as plain data, so that a test can inspect and run it."""
    column = ARCHITECTURES[machine][0]
    refuse = _answer(errno.EPERM)
    program = _opening(machine)
    for frequent in FREQUENT.values():
        program += _when(frequent[column], [(_RETURN, 0, 0, _ALLOW)])
    program += _when(
        SOCKET[column],
        [(_LOAD, 0, 0, _FIRST_ARGUMENT), (_EQUAL, 0, 1, AF_UNIX), (_RETURN, 0, 0, _ALLOW), refuse]
        if unix_sockets
        else [refuse],
    )
    program += _when(
        CLONE[column],
        [(_LOAD, 0, 0, _FIRST_ARGUMENT), (_ANY_BIT, 0, 1, NEW_NAMESPACES), refuse, (_RETURN, 0, 0, _ALLOW)],
    )
    # The flags of clone3 lie in memory, which a filter cannot read. C libraries fall back to clone.
    program += _when(CLONE3[column], [_answer(errno.ENOSYS)])
    # Allow limits of the calling process only.
    program += _when(
        PRLIMIT[column], [(_LOAD, 0, 0, _FIRST_ARGUMENT), (_EQUAL, 0, 1, 0), (_RETURN, 0, 0, _ALLOW), refuse]
    )
    # Refuse a signal other than SIGIO for a ready descriptor: see timers.
    program += _when(
        FCNTL[column], [(_LOAD, 0, 0, _SECOND_ARGUMENT), (_EQUAL, 0, 1, F_SETSIG), refuse, (_RETURN, 0, 0, _ALLOW)]
    )
    # Refuse to change the parent-death signal.
    program += _when(
        PRCTL[column],
        [
            (_LOAD, 0, 0, _FIRST_ARGUMENT), (_EQUAL, 0, 3, PR_SET_PDEATHSIG),
            (_LOAD, 0, 0, _SECOND_ARGUMENT), (_EQUAL, 1, 0, SIGKILL), refuse, (_RETURN, 0, 0, _ALLOW),
        ],
    )  # fmt: skip
    for refused in REFUSED.values():
        program += _when(refused[column], [refuse])
    return [*program, (_RETURN, 0, 0, _ALLOW)]


def build_pin(machine: str, refuses: bool = True) -> list[Instruction]:
    """Return a second filter for later, after which threads stay on their processors.

    A side that may change them gets a filter of the same length, because every system call passes through it and must
    take as long for each side.
    """
    column = ARCHITECTURES[machine][0]
    answer = _answer(errno.EPERM) if refuses else (_RETURN, 0, 0, _ALLOW)
    return [*_opening(machine), *_when(SET_AFFINITY[column], [answer]), (_RETURN, 0, 0, _ALLOW)]


def _opening(machine: str) -> list[Instruction]:
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, ARCHITECTURES[machine][1]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        program += [(_AT_LEAST, 0, 1, _X32), _answer(errno.EPERM)]  # x32 numbers of the same calls
    return program


def _answer(number: int) -> Instruction:
    return (_RETURN, 0, 0, 0x00050000 | number)


def _when(number: Number, then: list[Instruction]) -> list[Instruction]:
    return [] if number is None else [(_EQUAL, 0, len(then), number), *then]


def refuse_calls(unix_sockets: bool = False) -> str:
    """Install the filter on every thread of this process, permanently. Return a description. Requires no_new_privs."""
    _install(build_filter(_machine(), unix_sockets))
    return f"{len(REFUSED)} refused (seccomp), sockets {'local' if unix_sockets else 'none'}"


def refuse_affinity(refuses: bool = True) -> None:
    _install(build_pin(_machine(), refuses))


def _machine() -> str:
    if (machine := platform.machine()) not in ARCHITECTURES:
        raise SeccompUnavailable(f"no table of system calls for {machine}")
    return machine


def _install(program: list[Instruction]) -> None:
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *i) for i in program))
    filtered = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(code)))
    for flags in (_TSYNC | _SPEC_ALLOW, _TSYNC):  # kernels before 4.17 need the second
        try:
            if syscall("seccomp", _SECCOMP[platform.machine()], _SET_MODE_FILTER, flags, filtered) == 0:
                return
            raise SeccompUnavailable("another thread has a filter of its own")
        except OSError as error:
            if error.errno != errno.EINVAL or flags == _TSYNC:
                raise SeccompUnavailable(str(error.strerror)) from None
