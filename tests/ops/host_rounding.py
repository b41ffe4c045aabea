"""What a CPU may add to the errors of a GPU's kernels that it interprets or emulates."""

from __future__ import annotations

from dataclasses import replace

from kernwright.judge.numerics.contracts import Expected

# Triton's interpreter cuts a number off where a GPU rounds it: an RMS error of 0.58 units for one conversion, more for
# two. An emulation adds in another order. On a GPU the judge's own floor holds, and the GPU tests hold kernels to it.
HOST_RMS_ULPS = 0.8


def on_host(expected: Expected) -> Expected:
    """Return the expectation for a kernel that ran in an interpreter or an emulation."""
    return replace(expected, eager_rms=max(expected.eager_rms, HOST_RMS_ULPS * expected.ulp_rms))
