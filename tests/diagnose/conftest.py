"""Fixtures of the diagnosis: a stand-in for the driver's library."""

from __future__ import annotations

from pathlib import Path

import pytest
from diagnose.doctor.fake_driver import build_driver


@pytest.fixture(scope="session")
def driver_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for LD_LIBRARY_PATH, whose NVML has the GPUs of the variable FAKE_GPUS."""
    return build_driver(tmp_path_factory.mktemp("driver"))
