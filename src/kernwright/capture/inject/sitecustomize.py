"""Run by every Python that `kernwright capture` starts, before the program: this folder is first in PYTHONPATH.

It starts to record, removes itself from sys.path, and continues with the sitecustomize that would have run without it.
The environment stays as it is, so that the program's children record as well.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys

PACKAGE = "_kernwright_capture"  # a name of its own, because the program may import another version of kernwright


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
        # `site` expects this error if there is no such module.
        raise ImportError("no sitecustomize", name="sitecustomize")
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    try:
        _begin()
    except Exception as error:  # the program must run all the same
        sys.stderr.write(f"kernwright capture: not recording in process {os.getpid()}: {error!r}\n")
    _hand_over()
