"""The zygote program: a process that has imported torch and only forks workers.

The import of torch takes seconds, a fork milliseconds. No foreign code runs here: each child confines itself before it
loads a side. The judge adopts each child, because its parent exits, and so can wait for it and stop it like a process
that it started itself.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import io
import os
import signal
import socket
import struct
import sys
import tempfile
import time
import traceback

from kernwright.judge.protocol.channel import Channel, ChannelClosed, as_object
from kernwright.judge.protocol.messages import Fork, Forked, ZygoteStarted
from kernwright.judge.system.linux import PR_SET_DUMPABLE, prctl
from kernwright.judge.worker.compiler_keys import compute_compiler_keys
from kernwright.judge.worker.confine import die_with

PID = struct.Struct("<q")
ADOPTION_S = 10.0
UNBUFFERED = 2  # _IONBF of stdio.h
# Every worker would import these modules, and torch with them.
WORKER_MODULES = ("kernwright.judge.worker.worker_device", "kernwright.judge.worker.worker")


def main() -> None:
    descriptor, judge = (int(word) for word in sys.argv[1:3])
    die_with(judge)
    channel = Channel(socket.socket(fileno=descriptor))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the judge handles Ctrl-C
    prctl(PR_SET_DUMPABLE, 0)  # workers of the same user must not change what later workers are forked from
    gc.disable()  # The imports leave 200,000 objects and hardly any garbage. Looking for it takes 0.3 s.
    for module in WORKER_MODULES:
        importlib.import_module(module)
    for module in sys.argv[3:]:
        importlib.import_module(module)
        if _has_met_a_gpu():
            channel.send_json(ZygoteStarted(spoilt_by=module).model_dump())
            return
    compute_compiler_keys()
    if _has_met_a_gpu():
        channel.send_json(ZygoteStarted(spoilt_by=sys.argv[-1]).model_dump())
        return
    gc.freeze()
    gc.enable()
    channel.send_json(ZygoteStarted().model_dump())
    while True:
        try:
            _, payload, descriptors = channel.receive_json_with_descriptors()
        except ChannelClosed:
            return
        pid = _bear(Fork.model_validate(as_object(payload)), descriptors, judge, channel)
        for handed_on in descriptors:
            os.close(handed_on)
        channel.send_json(Forked(pid=pid).model_dump())


def _has_met_a_gpu() -> bool:
    """Return whether CUDA's driver is initialised here. It does not survive a fork."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return int(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))) == 0  # before cuInit it returns an error


def _bear(message: Fork, descriptors: list[int], judge: int, channel: Channel) -> int:
    """Fork twice and return the pid of the worker. The process in between exits, so the judge adopts the worker."""
    reading, writing = os.pipe()
    between = os.fork()
    if between == 0:
        child = os.fork()
        if child == 0:
            os.close(reading)
            os.close(writing)
            channel.connection.close()
            _live(message, descriptors, judge)
        os.write(writing, PID.pack(child))
        os._exit(0)
    os.close(writing)
    os.waitpid(between, 0)
    answer = os.read(reading, PID.size)
    os.close(reading)
    return int(PID.unpack(answer)[0])


def _live(message: Fork, descriptors: list[int], judge: int) -> None:
    """Run a worker from the fork to its end."""
    status = 1
    try:
        _settle(message, descriptors[1], judge)
        if message.orders.unbuffered:
            _print_at_once()
        from kernwright.judge.worker import worker

        worker.live(descriptors[0], judge, message.orders)
        status = 0
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _print_at_once() -> None:
    """Write what Python and C print to the log without a buffer."""
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(number, "w", closefd=False), errors="backslashreplace", write_through=True)
        for number in (1, 2)
    )
    libc = ctypes.CDLL(None)
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, UNBUFFERED, 0)


def _settle(message: Fork, log: int, judge: int) -> None:
    """Give the worker its session, environment and folder, and wait until the judge is its parent."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(message.environment)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(log)
    tempfile.tempdir = None  # the environment names another folder now
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    sys.pycache_prefix = os.environ.get("PYTHONPYCACHEPREFIX")
    os.chdir(message.folder)
    end = time.monotonic() + ADOPTION_S
    while os.getppid() != judge:
        if time.monotonic() > end:
            os._exit(1)  # the judge is gone
        time.sleep(0.0005)


if __name__ == "__main__":
    main()
