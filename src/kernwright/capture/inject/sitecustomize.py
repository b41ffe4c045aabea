"""Run by every Python that `kernwright capture` starts, before the program: this folder stands first in PYTHONPATH.

It begins to record, steps out of sys.path, and hands over to the sitecustomize that would have run without it. The
variables stay as they are, so that the program's children record as well.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys

PACKAGE = "_kernwright_capture"  # a name of its own: the program may import kernwright, and another version of it


def _begin() -> None:
    folder = os.environ.get("KERNWRIGHT_CAPTURE")
    if not folder or PACKAGE in sys.modules or not os.path.isdir(folder):  # noqa: PTH112
        return  # not captured, or the capture has ended and left this program behind
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    spec = importlib.util.spec_from_file_location(
        PACKAGE,
        os.path.join(home, "__init__.py"),  # noqa: PTH118
        submodule_search_locations=[home],
    )
    if spec is None or spec.loader is None:
        return
    package = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = package
    spec.loader.exec_module(package)
    importlib.import_module(f"{PACKAGE}.hook").start(folder)


def _hand_over() -> None:
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != here]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        raise ImportError("no sitecustomize", name="sitecustomize")  # what `site` expects where there is none
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    try:
        _begin()
    except Exception as error:  # the program must run all the same
        sys.stderr.write(f"kernwright capture: not recording in process {os.getpid()}: {error!r}\n")
    _hand_over()
