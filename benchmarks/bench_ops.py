"""Time kernwright.ops on this GPU against the eager chain and a copy of the same bytes.

    python benchmarks/bench_ops.py [--rows GLOB] [--json FILE]

All sides of a row run in one process, one after the other in each of several rounds, as CUDA graphs over enough input
sets to exceed the cache several times. The figure is the median round. Compare ratios only: another process has another
clock. `host` is the time that a public call takes to return, beyond a bare foreign call and the allocation of its
output, on the smallest row. The figures are not evidence. Evidence comes from the judge.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch

from kernwright import ops
from kernwright.judge.device.cuda.copying import copy_methods, whole_pages
from kernwright.ops.catalog import dispatcher
from kernwright.ops.norm_modulation.family import CUDA

BF16, FP32 = torch.bfloat16, torch.float32
COLD_BYTES = 256 * 2**20  # several times the cache of every present GPU
ROUNDS = 9


def draw(*sizes: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(sizes, device="cuda", dtype=dtype)


@dataclass(frozen=True)
class Row:
    """norm_scale_shift, or its residual twin."""

    name: str
    tokens: int
    width: int
    modulation: tuple[str, torch.dtype] = ("row", BF16)
    residual: bool = False
    dtype: torch.dtype = BF16

    @property
    def op(self) -> Callable[..., Any]:
        return ops.residual_norm_scale_shift if self.residual else ops.norm_scale_shift

    def inputs(self) -> list[torch.Tensor]:
        layout, dtype = self.modulation
        sizes = {"row": (1, self.width), "token": (1, self.tokens, self.width), "frame": (1, 21, 1, self.width)}[layout]
        modulations = [draw(*sizes, dtype=dtype) for _ in range(3 if self.residual else 2)]
        tokens = [draw(1, self.tokens, self.width, dtype=self.dtype) for _ in range(1 + self.residual)]
        return [*tokens, *modulations]

    @property
    def bytes(self) -> int:
        """Return the fewest bytes that must move: inputs once, outputs once."""
        element = torch.empty(0, dtype=self.dtype).element_size()
        tokens = (4 if self.residual else 2) * self.tokens * self.width * element
        if self.modulation[0] != "token":
            return tokens
        own = torch.empty(0, dtype=self.modulation[1]).element_size()
        return tokens + (3 if self.residual else 2) * self.tokens * self.width * own


@dataclass(frozen=True)
class NormRow:
    """layer_norm with weight and bias, or rms_norm with a weight."""

    name: str
    rows: int
    width: int
    dtype: torch.dtype = BF16
    packed: bool = False  # x is one of three projections in one tensor: 24 heads, then those of the next token

    @property
    def op(self) -> Callable[..., Any]:
        return ops.layer_norm if self.name.startswith("plain_ln") else ops.rms_norm

    def inputs(self) -> list[torch.Tensor]:
        affine = [draw(self.width, dtype=self.dtype) for _ in range(2 if self.op is ops.layer_norm else 1)]
        if self.packed:
            return [draw(self.rows // 24, 72, self.width, dtype=self.dtype)[:, 24:48], *affine]
        return [draw(self.rows, self.width, dtype=self.dtype), *affine]

    @property
    def bytes(self) -> int:
        return 2 * self.rows * self.width * torch.empty(0, dtype=self.dtype).element_size()


@dataclass(frozen=True)
class ModulationRow:
    """A row of the elementwise ops. scale is the gate of a residual_gate, shift its residual."""

    name: str
    tokens: int
    width: int
    scale: tuple[str, torch.dtype] = ("row", BF16)
    shift: tuple[str, torch.dtype] = ("row", BF16)

    @property
    def op(self) -> Callable[..., Any]:
        return ops.residual_gate if self.name.startswith("gate") else ops.scale_shift

    def inputs(self) -> list[torch.Tensor]:
        def laid_out(layout: str, dtype: torch.dtype) -> torch.Tensor:
            sizes = {"row": (1, 1), "token": (1, self.tokens), "frame": (1, 21, 1)}[layout]
            return draw(*sizes, self.width, dtype=dtype)

        x, scale, shift = laid_out("token", BF16), laid_out(*self.scale), laid_out(*self.shift)
        return [x, scale, shift] if self.op is ops.scale_shift else [shift, x, scale]

    @property
    def bytes(self) -> int:
        """Return the fewest bytes that must move: inputs once, outputs once."""
        streamed = [dtype for layout, dtype in (self.scale, self.shift) if layout == "token"]
        return self.tokens * self.width * (4 + sum(dtype.itemsize for dtype in streamed))


@dataclass(frozen=True)
class TokenRow:
    """A row of an op that has a Triton kernel but no CUDA kernel yet."""

    name: str
    op: Callable[..., Any]
    tokens: int
    width: int
    # Tensors of the op: "t" tokens, "r" and "2" a row, "w" a weight, "i" an index, "m" and "T" an embedding and a table
    # of four rows, "n" and "U" the same of two rows.
    given: str
    outputs: tuple[torch.dtype, ...] = (BF16,)
    batch: int = 1

    def inputs(self) -> list[torch.Tensor]:
        b, s, d = self.batch, self.tokens, self.width
        sizes = {"t": (b, s, d), "r": (b, 1, d), "2": (b, d), "w": (d,), "m": (b, 1, 4 * d), "T": (4, d)}
        sizes |= {"n": (b, 1, 2 * d), "U": (2, d)}
        return [
            torch.randint(0, 2, (b, s), device="cuda", dtype=torch.int32)
            if kind == "i"
            else draw(*sizes[kind], dtype=BF16)
            for kind in self.given
        ]

    @property
    def bytes(self) -> int:
        """Return the fewest bytes that must move: tokens in once, outputs once."""
        each = 2 * self.given.count("t") + sum(dtype.itemsize for dtype in self.outputs)
        return self.batch * self.tokens * self.width * each


SELECT = "222222i"
TOKEN_ROWS = [
    TokenRow("select_s195_d3072", ops.norm_scale_shift_select, 195, 3072, f"t{SELECT}", (BF16,) * 2),
    TokenRow("select_s8424_d3072", ops.norm_scale_shift_select, 8424, 3072, f"t{SELECT}", (BF16,) * 2),
    TokenRow("res_select_s8424_d3072", ops.residual_norm_scale_shift_select, 8424, 3072, f"ttt{SELECT}", (BF16,) * 3),
    TokenRow("tanh_s195_d3840", ops.norm_tanh_mul_add, 195, 3840, "trtw"),
    TokenRow("tanh_s4128_d3840", ops.norm_tanh_mul_add, 4128, 3840, "trtw"),
    TokenRow("tanh_twice_s4128_d3840", ops.norm_tanh_mul_add_norm_scale, 4128, 3840, "trtrw", (BF16,) * 2),
    TokenRow("rms_mod_s126_d2048_token", ops.rms_modulate, 126, 2048, "ttt", (FP32,), batch=2),
    TokenRow("rms_mod_s32640_d4096_token", ops.rms_modulate, 32640, 4096, "ttt", (FP32,)),
    TokenRow("dual_mod_s126_d2048", ops.dual_modulate, 126, 2048, "trrrr", (FP32,) * 2, batch=2),
    TokenRow("dual_mod_s32640_d4096", ops.dual_modulate, 32640, 4096, "trrrr", (FP32,) * 2),
    TokenRow("rms_table_s32640_d4096", ops.rms_modulate_from_table, 32640, 4096, "tnU", (FP32,)),
    TokenRow("dual_table_s32640_d4096", ops.dual_modulate_from_table, 32640, 4096, "tmT", (FP32,) * 2),
    TokenRow("ernie_norm_s4096_d4096", ops.ernie_norm_modulate, 4096, 4096, "twrr"),
    TokenRow("ernie_res_norm_s4096_d4096", ops.ernie_residual_norm_modulate, 4096, 4096, "ttrwrr", (BF16,) * 2),
    TokenRow("ernie_gate_s4096_d4096", ops.ernie_residual_gate, 4096, 4096, "ttr"),
]

RESIDUAL = ("token", BF16)
MODULATION_ROWS = [
    ModulationRow("mod_s19_d3072", 19, 3072),
    ModulationRow("mod_s195_d3072", 195, 3072),
    ModulationRow("mod_s4096_d3072", 4096, 3072),
    ModulationRow("mod_s8424_d3072", 8424, 3072),
    ModulationRow("mod_s27030_d3072", 27030, 3072),
    ModulationRow("mod_s37800_d5120_fp32mod", 37800, 5120, scale=("row", FP32), shift=("row", FP32)),
    ModulationRow("mod_s37800_d5120_frame", 37800, 5120, scale=("frame", BF16), shift=("frame", BF16)),
    ModulationRow("mod_s18144_d3072_token_fp32mod", 18144, 3072, scale=("token", FP32), shift=("token", FP32)),
    ModulationRow("mod_s8424_d3073", 8424, 3073),
    ModulationRow("muladd_s8424_d3072", 8424, 3072, shift=RESIDUAL),
    ModulationRow("muladd_s27030_d3072", 27030, 3072, shift=RESIDUAL),
    ModulationRow("muladd_s37800_d5120_fp32mod", 37800, 5120, scale=("row", FP32), shift=RESIDUAL),
    ModulationRow("gate_s126_d2048_token", 126, 2048, RESIDUAL, RESIDUAL),
    ModulationRow("gate_s4096_d3072", 4096, 3072, shift=RESIDUAL),
    ModulationRow("gate_s4096_d4608", 4096, 4608, shift=RESIDUAL),
    ModulationRow("gate_s32640_d4096", 32640, 4096, shift=RESIDUAL),
    ModulationRow("gate_s8160_d4096_token", 8160, 4096, RESIDUAL, RESIDUAL),
]

AnyRow = Row | NormRow | ModulationRow | TokenRow
ROWS: list[AnyRow] = [
    Row("ln_s19_d3072", 19, 3072),
    Row("ln_s195_d3072", 195, 3072),
    Row("ln_s4096_d3072", 4096, 3072),
    Row("ln_s8424_d3072", 8424, 3072),
    Row("ln_s27030_d3072", 27030, 3072),
    Row("ln_s44100_d5120", 44100, 5120),
    Row("ln_s37800_d5120_fp32mod", 37800, 5120, ("row", FP32)),
    Row("ln_s18144_d3072_token", 18144, 3072, ("token", BF16)),
    Row("ln_s18144_d3072_token_fp32mod", 18144, 3072, ("token", FP32)),
    Row("ln_s37800_d5120_frame", 37800, 5120, ("frame", BF16)),
    Row("res_s195_d3072", 195, 3072, residual=True),
    Row("res_s4096_d3072", 4096, 3072, residual=True),
    Row("res_s8424_d3072", 8424, 3072, residual=True),
    Row("res_s27030_d3072", 27030, 3072, residual=True),
    Row("res_s44100_d5120", 44100, 5120, residual=True),
    Row("ln_s8192_d128", 8192, 128),
    Row("ln_s8424_d3073", 8424, 3073),
    Row("ln_s2048_d16384", 2048, 16384),
    Row("ln_s1024_d65536", 1024, 65536),
    Row("ln_s8640_d5120_fp32", 8640, 5120, ("row", FP32), dtype=FP32),
    NormRow("plain_ln_8640x5120_fp32", 8640, 5120, FP32),
    NormRow("plain_ln_8424x3072", 8424, 3072),
    NormRow("plain_rms_1320x128", 1320, 128),
    NormRow("plain_rms_16384x128", 16384, 128),
    NormRow("plain_rms_648720x128", 648720, 128),
    NormRow("plain_rms_648720x128_packed", 648720, 128, packed=True),
    NormRow("plain_rms_648720x96", 648720, 96),
    NormRow("plain_rms_27030x3072", 27030, 3072),
]


def graph_of(call: Callable[..., Any], sets: list[list[torch.Tensor]]) -> Callable[[], None]:
    """Return a graph whose replay runs the call once on each input set."""
    call(*sets[0])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [call(*own) for own in sets]
    del kept
    return graph.replay


def seconds(replay: Callable[[], None], times: int) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(times):
        replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def measure(row: AnyRow) -> dict[str, Any]:
    count = max(2, min(64, COLD_BYTES // row.bytes + 1))
    sets = [row.inputs() for _ in range(count)]
    op = row.op
    buffers = [torch.empty(whole_pages(row.bytes), dtype=torch.uint8, device="cuda") for _ in range(count + 1)]
    copies = [[buffers[i + 1], buffers[i]] for i in range(count)]
    sides: dict[str, Callable[[], None]] = {}
    with torch.no_grad():
        for backend in (own for own in dispatcher(op.__name__).backends if own != "cpu"):
            sides[backend] = graph_of(lambda *given, b=backend: op(*given, backend=b), sets)  # type: ignore[misc]
        for way in copy_methods("cuda"):
            sides[way.__name__] = graph_of(way, copies)
    found: dict[str, list[float]] = {name: [] for name in sides}
    for replay in sides.values():
        seconds(replay, 3)
    times = {name: max(1, int(0.01 / max(seconds(replay, 1), 1e-6))) for name, replay in sides.items()}
    for _ in range(ROUNDS):
        for name, replay in sides.items():
            found[name].append(seconds(replay, times[name]) / times[name] / count)
    middle = {name: statistics.median(values) for name, values in found.items()}
    middle["copy"] = min(middle.pop(way.__name__) for way in copy_methods("cuda"))
    best = next(name for name in ("cuda", "triton") if name in middle)  # the default backend
    return {
        "row": row.name,
        "bytes": row.bytes,
        **{f"{name}_us": round(value * 1e6, 2) for name, value in middle.items()},
        "tb_per_s": round(row.bytes / middle[best] / 1e12, 3),
        "share_of_copy": round(middle["copy"] / middle[best], 3),
        f"eager_over_{best}": round(middle["torch"] / middle[best], 2),
        **({} if best == "triton" else {"triton_over_cuda": round(middle["triton"] / middle["cuda"], 2)}),
    }


def host_cost() -> dict[str, float]:
    """Return the microseconds that a public call takes to return, back to back, and those of its unavoidable parts."""
    x, scale, shift = ROWS[0].inputs()
    launch = CUDA["norm_scale_shift"].launch(x.device, x.dtype)
    sides: dict[str, Callable[[], Any]] = {
        "public": lambda: ops.norm_scale_shift(x, scale, shift),
        "bare": lambda: launch(x, scale, shift, None, None, "layer", 1e-6, torch.empty_like(x)),
    }
    found: dict[str, list[float]] = {name: [] for name in sides}
    with torch.no_grad():
        for _ in range(30):
            for name, call in sides.items():
                torch.cuda.synchronize()
                start = time.perf_counter()
                for _ in range(500):
                    call()
                found[name].append((time.perf_counter() - start) / 500 * 1e6)
    middle = {name: round(statistics.median(values), 2) for name, values in found.items()}
    return {**middle, "above_bare": round(middle["public"] - middle["bare"], 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="*", help="a glob over the rows' names")
    parser.add_argument("--json", type=Path, help="where the figures go, too")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("bench_ops: torch sees no CUDA device")
    start = time.perf_counter()
    ops.norm_scale_shift(*ROWS[0].inputs(), backend="cuda")
    first_call = time.perf_counter() - start
    figures = []
    columns = ("cuda_us", "triton_us", "torch_us", "copy_us", "tb_per_s", "share_of_copy", "eager_over_cuda")
    print(f"{'row':32}" + "".join(f"{name:>16}" for name in columns))
    for row in (*ROWS, *MODULATION_ROWS, *TOKEN_ROWS):
        if fnmatchcase(row.name, asked.rows):
            figures.append(measure(row))
            print(f"{row.name:32}" + "".join(f"{figures[-1].get(name, '-'):>16}" for name in columns), flush=True)
            torch.cuda.empty_cache()
    host = host_cost()
    print(f"host, us a call: {host}; first call {first_call:.1f} s")
    if asked.json:
        record = {"device": torch.cuda.get_device_name(), "rows": figures, "host": host, "first_call_s": first_call}
        asked.json.write_text(json.dumps(record, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
