"""Distances, against a naive twin. Without a GPU, Triton's interpreter runs the kernel."""

from __future__ import annotations

from collections.abc import Callable

CODE = """
import math, torch
from kernwright.judge.device.cuda.memory.distance import distances, joined, poison

device = "cuda" if torch.cuda.is_available() else "cpu"
CASES = (torch.bfloat16, torch.float32, 20_000), (torch.float32, torch.float64, 8192), (torch.float16, torch.float32, 7)
for dtype, wide, elements in CASES:
    memory = torch.randn(6 * elements + 64, device=device).to(dtype)
    starts = [5 * elements, 16, 2 * elements]
    values = torch.stack([memory[s : s + elements] for s in starts])
    centre = values.to(wide) + torch.randn(3, elements, device=device, dtype=wide) * 0.01
    furthest, rms = distances(memory, starts, centre)
    away = (values.to(wide) - centre).double()
    torch.testing.assert_close(furthest.double(), away.abs().amax(1), rtol=1e-6, atol=0)
    torch.testing.assert_close(rms, away.square().mean(1).sqrt(), rtol=1e-5, atol=0)
    memory[starts[1] + 3] = math.nan
    furthest, rms = distances(memory, starts, centre)
    assert math.isinf(furthest[1]) and not torch.isfinite(furthest).all() and math.isfinite(furthest[0])

assert joined([(64, 96), (0, 32), (32, 64), (128, 128), (200, 208)]) == [(0, 96), (200, 208)]
apart = [(start, start + 40) for start in range(128, 16_000, 128)]  # more than are filled one by one
for spans in ([(8, 64), (64, 128)], [(3, 9)], [], [(0, 0)], apart):
    memory = torch.zeros(16_384, dtype=torch.uint8, device=device)
    poison(memory, spans)
    wanted = torch.zeros_like(memory)
    for start, end in spans:
        wanted[start:end] = 255
    assert torch.equal(memory, wanted), spans[:2]
print("checked")
"""


def test_distances_agree_with_a_naive_twin(said_by: Callable[[str], str]) -> None:
    assert said_by(CODE) == "checked"
