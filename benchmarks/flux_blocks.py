# ruff: noqa: E402  (a module is blocked before diffusers is imported)
"""Blocks of FLUX.1 from diffusers, with random weights: the program that bench_swap.py runs.

    python benchmarks/flux_blocks.py --perf-dump FILE [--tiny] [--trace FILE]

It needs diffusers. `--tiny` has a small width and few tokens, for a CPU. `--trace` records one step with torch.profiler
instead, with a range around each adaptive norm, and then the op that replaces them on tensors of the same shapes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

BEGIN = time.perf_counter()
if __name__ == "__main__":  # diffusers would import them, which is a third of the start, and no block needs them
    for unneeded in ("transformers", "peft"):  # peft imports transformers
        sys.modules[unneeded] = None  # type: ignore[assignment]

import torch
from diffusers.models.normalization import AdaLayerNormContinuous, AdaLayerNormZero, AdaLayerNormZeroSingle
from diffusers.models.transformers.transformer_flux import FluxTransformer2DModel

from kernwright import ops
from kernwright.diagnose.perf_dump.dump_files import write_dump
from kernwright.diagnose.perf_dump.provenance import collect_provenance
from kernwright.diagnose.perf_dump.recorder import DumpRecorder

NORMS = (AdaLayerNormZero, AdaLayerNormZeroSingle, AdaLayerNormContinuous)
CHAIN, OP = "chain", "op"  # first words of the ranges in a trace
OP_CALLS = 5  # calls of each shape in a trace
WARM_UP = 3
FULL = {"attention_head_dim": 128, "num_attention_heads": 24, "joint_attention_dim": 4096, "pooled_projection_dim": 768}
TINY = {"attention_head_dim": 16, "num_attention_heads": 4, "joint_attention_dim": 32, "pooled_projection_dim": 32}
FULL_TOKENS, TINY_TOKENS = (64, 512), (4, 8)  # side of the image in tokens, tokens of the text


class Blocks:
    """A FLUX.1 transformer with few blocks, and inputs of one denoising step."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.device = "cuda" if torch.cuda.is_available() and not asked.tiny else "cpu"
        self.dtype = torch.bfloat16
        sizes, (side, text) = (TINY, TINY_TOKENS) if asked.tiny else (FULL, FULL_TOKENS)
        axes = (4, 6, 6) if asked.tiny else (16, 56, 56)
        torch.manual_seed(0)
        with torch.device(self.device):
            before = torch.get_default_dtype()
            torch.set_default_dtype(self.dtype)
            self.model = FluxTransformer2DModel(
                num_layers=asked.layers, num_single_layers=asked.single_layers, guidance_embeds=True,
                axes_dims_rope=axes, **sizes,
            ).eval()  # fmt: skip
            torch.set_default_dtype(before)
        self.inputs = self._inputs(side, text, sizes)
        self.tokens = side * side + text

    def _inputs(self, side: int, text: int, sizes: dict[str, int]) -> dict[str, Any]:
        def drawn(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, device=self.device, dtype=self.dtype)

        rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
        places = torch.stack([torch.zeros_like(rows), rows, columns], dim=-1).reshape(-1, 3)
        return {
            "hidden_states": drawn(1, side * side, 64),
            "encoder_hidden_states": drawn(1, text, sizes["joint_attention_dim"]),
            "pooled_projections": drawn(1, sizes["pooled_projection_dim"]),
            "timestep": torch.full((1,), 0.5, device=self.device, dtype=self.dtype),
            "guidance": torch.full((1,), 3.5, device=self.device, dtype=self.dtype),
            "img_ids": places.to(self.device, self.dtype),
            "txt_ids": torch.zeros(text, 3, device=self.device, dtype=self.dtype),
            "return_dict": False,
        }

    def step(self) -> torch.Tensor:
        return self.model(**self.inputs)[0]  # type: ignore[no-any-return]


def timed(blocks: Blocks, steps: int, path: Path) -> None:
    """Time the steps and write a perf dump. The GPU never waits for the host between two steps."""
    recorder = DumpRecorder(blocks.device)
    for _ in range(WARM_UP):
        blocks.step()
    with recorder.run(), recorder.stage("DenoisingStage"):
        for _ in range(steps):
            with recorder.denoise_step():
                blocks.step()
    recorder.checkpoint("after_denoising")
    workload = {"tokens": blocks.tokens, "blocks": len(list(blocks.model.children())), "steps": steps}
    write_dump(path, recorder.dump(collect_provenance(preset="flux-blocks", workload=workload)))


def traced(blocks: Blocks, path: Path) -> None:
    """Record one step, with a range around each adaptive norm, and then the op on the same shapes."""
    shapes: Counter[tuple[int, ...]] = Counter()
    ranges: list[Any] = []

    def enter(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = args[0] if args else kwargs["x"]
        shapes[tuple(x.shape)] += 1
        ranges.append(torch.profiler.record_function(CHAIN))
        ranges[-1].__enter__()

    def leave(module: torch.nn.Module, args: tuple[Any, ...], result: Any) -> None:
        ranges.pop().__exit__(None, None, None)

    for module in blocks.model.modules():
        if isinstance(module, NORMS):
            module.register_forward_pre_hook(enter, with_kwargs=True)
            module.register_forward_hook(leave)
    for _ in range(WARM_UP):
        blocks.step()
    for shape in shapes:  # the first call builds and loads the op's kernel
        call_op(shape, 1, blocks)
    shapes.clear()
    activities = [torch.profiler.ProfilerActivity.CPU]
    if blocks.device == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
        blocks.step()
        for shape, calls in shapes.items():
            call_op(shape, calls, blocks)
        if blocks.device == "cuda":
            torch.cuda.synchronize()
    profiler.export_chrome_trace(str(path))


def call_op(shape: tuple[int, ...], calls: int, blocks: Blocks) -> None:
    """Call the op on new tensors. As in the model, another kernel has just written x."""
    modulation = torch.randn(shape[0], 6 * shape[-1], device=blocks.device, dtype=blocks.dtype)
    shift, scale, *_ = modulation.chunk(6, dim=1)
    for _ in range(OP_CALLS):
        x = torch.randn(shape, device=blocks.device, dtype=blocks.dtype) * 2.0
        with torch.profiler.record_function(f"{OP} {calls}"):
            ops.norm_scale_shift(x, scale, shift)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--perf-dump", type=Path, help="file to write the perf dump to")
    parser.add_argument("--trace", type=Path, help="file to write a trace to, instead of a perf dump")
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--single-layers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--tiny", action="store_true")
    asked = parser.parse_args()
    marks = [BEGIN, time.perf_counter()]
    blocks = Blocks(asked)
    marks.append(time.perf_counter())
    with torch.no_grad():
        if asked.trace is not None:
            traced(blocks, asked.trace)
        else:
            timed(blocks, asked.steps, asked.perf_dump)
    marks.append(time.perf_counter())
    spent = zip(("imports", "model", "steps"), marks, marks[1:], strict=False)
    print("flux_blocks:", ", ".join(f"{name} {end - start:.1f} s" for name, start, end in spent), file=sys.stderr)


if __name__ == "__main__":
    main()
