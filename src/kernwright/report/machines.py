"""The machines that verdicts were made on."""

from __future__ import annotations

from collections.abc import Iterable

from kernwright.core.errors import KernwrightError
from kernwright.judge.record.verdict import Verdict


def model_of(verdict: Verdict) -> str:
    """Return the model of the device that a verdict was made on."""
    hardware = verdict.provenance["hardware"]
    return str(hardware.get("model", hardware["kind"]))


def gpu_of(verdict: Verdict) -> str:
    """Return an identifier of the GPU that a verdict was made on, or its model if no identifier was recorded."""
    return str(verdict.provenance["hardware"].get("uuid", model_of(verdict)))


def machines_of(verdicts: Iterable[Verdict]) -> list[str]:
    """Return one line for each model and set of library versions."""
    found = set()
    for verdict in verdicts:
        libraries = ", ".join(f"{name} {version}" for name, version in verdict.provenance["libraries"].items())
        found.add(f"{model_of(verdict)}: {libraries}")
    return sorted(found)


def refuse_mixed_models(verdicts: Iterable[Verdict]) -> None:
    """Raise KernwrightError if verdicts are of several models: a mean over models describes none of them."""
    models = sorted({model_of(verdict) for verdict in verdicts})
    if len(models) > 1:
        raise KernwrightError(
            f"the ledger's records are of {len(models)} models: {', '.join(models)}",
            f"choose one: --model {models[0]!r}",
        )
