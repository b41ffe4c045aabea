"""Programs that run with Triton's interpreter.

Triton decides at import whether it interprets, so these programs need a process with the variable TRITON_INTERPRET.
The import of torch and Triton takes longer than most of the programs. So one process, this file run as a program,
imports them for all tests of a test process and forks a child for each program.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any


def run_interpreted(code: str, *arguments: str) -> str:
    """Run Python code in a process of its own with Triton's interpreter, and return what it prints."""
    done = _answer(_server(), {"code": code, "arguments": arguments, "path": sys.path, "folder": str(Path.cwd())})
    assert done["status"] == 0, done["stderr"][-2000:]
    return str(done["stdout"])


@functools.cache
def _server() -> subprocess.Popen[str]:
    """Start the process. It ends with the test process, which closes its input."""
    return subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )  # fmt: skip


def _answer(server: subprocess.Popen[str], request: dict[str, Any]) -> dict[str, Any]:
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    line = server.stdout.readline()
    assert line, "the process with the interpreter has ended, see its errors above"
    answer: dict[str, Any] = json.loads(line)
    return answer


def _serve() -> None:
    import torch  # noqa: F401
    import triton.language
    import triton.runtime.interpreter  # noqa: F401

    import kernwright.ops  # noqa: F401

    for line in sys.stdin:
        print(json.dumps(_forked(json.loads(line))), flush=True)


def _forked(request: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        child = os.fork()
        if child == 0:
            os.dup2(stdout.fileno(), 1)
            os.dup2(stderr.fileno(), 2)
            os._exit(_status_of(request))
        _, status = os.waitpid(child, 0)
        stdout.seek(0)
        stderr.seek(0)
        return {"status": os.waitstatus_to_exitcode(status), "stdout": stdout.read(), "stderr": stderr.read()}


def _status_of(request: dict[str, Any]) -> int:
    """Run a program in a child and return its exit status."""
    os.chdir(request["folder"])
    sys.path[:] = request["path"]
    sys.argv[1:] = request["arguments"]
    try:
        exec(compile(request["code"], "<program>", "exec"), {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    _serve()
