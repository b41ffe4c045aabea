"""Perf dumps for the tests of comparisons."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any


def dump_of(total: float, steps: list[float], memory: float = 9000.0, **provenance: Any) -> dict[str, Any]:
    """Return a dump as `kernwright denoise` writes it."""
    own = {"preset": "flux", "workload": {"width": 1024, "steps": len(steps)}, "gpus": ["NVIDIA H200"]} | provenance
    return {
        "total_duration_ms": total,
        "steps": [
            {"name": "DenoisingStage", "duration_ms": sum(steps)},
            {"name": "DecodingStage", "duration_ms": 80.0},
            {"name": "DecodingStage", "duration_ms": 20.0},
        ],
        "denoise_steps_ms": [{"step": at, "duration_ms": taken} for at, taken in enumerate(steps)],
        "memory_checkpoints": {"after": {"peak_reserved_mb": memory}},
        "kernwright": own,
    }


def write(path: Path, held: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(held))
    return path


def write_label(
    folder: Path, factor: float, runs: int, seed: int = 0, drift: float = 0.0, noise: float = 0.005, **provenance: Any
) -> Path:
    """Write repeated runs, each slower than the one before by `drift`, all `factor` times as slow as usual."""
    chance = random.Random(seed)
    for run in range(runs):
        level = 100 * factor * chance.gauss(1, noise) * (1 + drift) ** run
        steps = [level * chance.gauss(1, 0.002) for _ in range(8)]
        turn = {"turn": run} if "series" in provenance else {}
        write(folder / f"{run}.json", dump_of(sum(steps) + 100 * level / 100, steps, **provenance, **turn))
    return folder
