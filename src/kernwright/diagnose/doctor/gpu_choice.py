"""The choice of GPUs for a run: idle ones, pinned through CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernwright.core.errors import EnvironmentProblem
from kernwright.diagnose.doctor.gpu import Gpu

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
_BY_BUS = "PCI_BUS_ID"


@dataclass(frozen=True)
class GpuChoice:
    """The GPUs of a run, and the variables that pin them."""

    gpus: tuple[Gpu, ...]
    environment: Mapping[str, str]


def choose_gpus(count: int, gpus: Sequence[Gpu], environment: Mapping[str, str], allow_busy: bool = False) -> GpuChoice:
    """Choose idle GPUs and pin them by their index, since not every program reads UUIDs there.

    If CUDA_VISIBLE_DEVICES is set, it is not changed, and the GPUs that it names are checked.

    Args:
        count: how many the run needs; 0 needs none and pins nothing.
        gpus: all GPUs of the machine, in the order of their bus addresses.
        allow_busy: take GPUs that others use, too, if there are not enough idle ones.

    Raises:
        EnvironmentProblem: there are not enough GPUs. The message names the users of each.
    """
    named = environment.get(VISIBLE)
    if count == 0 or "MIG-" in (named or ""):  # MIG: whether a part of a GPU is idle cannot be checked
        return GpuChoice((), {})
    candidates = visible_gpus(gpus, environment)
    if len(candidates) < count:
        where = f" in {VISIBLE}={named}" if named is not None else ""
        raise EnvironmentProblem(
            f"the run needs {count} GPU(s), but there are {len(candidates)}{where}",
            f"unset or extend {VISIBLE}, or run a smaller preset",
        )
    idle = [gpu for gpu in candidates if gpu.is_idle]
    wanted = candidates if named is not None else idle[:count]
    if (len(idle) < count or (named is not None and len(idle) < len(candidates))) and not allow_busy:
        users = "; ".join(f"GPU {gpu.index}: {gpu.in_use}" for gpu in candidates if not gpu.is_idle)
        raise EnvironmentProblem(
            f"the run needs {count} idle GPU(s), but {len(idle)} of {len(candidates)} are idle: {users}",
            "wait until they have ended, or end them; or accept disturbed times with --allow-busy",
        )
    if named is not None:
        return GpuChoice(tuple(wanted), {})
    chosen = sorted([*idle, *(gpu for gpu in candidates if not gpu.is_idle)][:count], key=lambda gpu: gpu.index)
    return GpuChoice(tuple(chosen), {VISIBLE: ",".join(str(gpu.index) for gpu in chosen), ORDER: _BY_BUS})


def visible_gpus(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> list[Gpu]:
    """Return the GPUs that a program with this environment sees."""
    named = environment.get(VISIBLE)
    return list(gpus) if named is None else named_gpus(named, gpus)


def named_gpus(named: str, gpus: Sequence[Gpu]) -> list[Gpu]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES names. Like CUDA, stop at the first name that is unknown.

    An index counts as CUDA counts: by bus address only if CUDA_DEVICE_ORDER says so. Otherwise the fastest comes first,
    which is the same order on a machine with equal GPUs.
    """
    found: list[Gpu] = []
    for word in (part.strip() for part in named.split(",")):
        known = [gpu for gpu in gpus if (word.isdigit() and gpu.index == int(word)) or _is_uuid_of(word, gpu)]
        if len(known) != 1:
            break
        found += known
    return found


def _is_uuid_of(word: str, gpu: Gpu) -> bool:
    return word.startswith("GPU-") and gpu.uuid.startswith(word)
