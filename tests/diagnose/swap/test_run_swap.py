"""`kernwright run --swap` on real programs: what runs instead, what goes to the original, and how the command ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernwright.diagnose.perf_dump.dump import PerfDump
from kernwright.diagnose.perf_dump.dump_files import read_dump

LIBRARY = """
import torch
import torch.nn.functional as F

def modulate(x, scale, shift, eps=1e-6, dropout=0.0):
    y = F.layer_norm(x, x.shape[-1:], eps=eps) * (1 + scale) + shift
    return y * (1 - dropout)

def add_(x, y):
    x += y
    return x

def noisy(x):
    return x + 0 * torch.rand(3)

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(16, 32)
        self.eps = 1e-6

    def forward(self, x, emb=None):
        scale, shift = self.linear(emb).chunk(2, dim=-1)
        return F.layer_norm(x, (16,), eps=self.eps) * (1 + scale) + shift, scale
"""
PROGRAM = """
import json, sys, time
import torch
import library

def own(x, y):
    return (x * y).float().sum() * 0 + torch.rand(())

torch.manual_seed(1)
x, s = torch.randn(2, 5, 16).to(torch.bfloat16), torch.randn(16).to(torch.bfloat16)
layer, state = library.Layer().to(torch.bfloat16), torch.zeros(3)
begin = time.perf_counter()
with torch.no_grad():
    for step in range(6):
        y = library.modulate(x, s, s)
        library.modulate(x.double(), s.double(), s.double())
        library.modulate(x, s, s, dropout=0.5)
        z, _ = layer(x, emb=x)
        library.add_(state, torch.ones(3))
        library.noisy(state)
print(json.dumps([y.float().sum().item(), z.float().sum().item(), state.tolist(), torch.rand(()).item()]))
if "--perf-dump-path" in sys.argv:
    held = {"total_duration_ms": 1e3 * (time.perf_counter() - begin), "denoise_steps_ms": [1.0, 2.0]}
    with open(sys.argv[-1], "w") as file:
        json.dump(held, file)
"""
ADAPTERS = """
import torch
import torch.nn.functional as F

def layer(self, x, emb=None):
    scale, shift = self.linear(emb).chunk(2, dim=-1)
    return torch.addcmul(shift, F.layer_norm(x, (16,), eps=self.eps), 1 + scale), scale

def add_(x, y):
    return torch.add(x, y, out=x)

def noisy(x):
    return 0 * torch.rand(3) + x

def add_without_effect(x, y):
    return x + y

def wrong(self, x, emb=None):
    scale, shift = self.linear(emb).chunk(2, dim=-1)
    return F.layer_norm(x, (16,), eps=0.5) * (1 + scale) + shift, scale

def other_type(self, x, emb=None):
    return tuple(each.float() for each in layer(self, x, emb))

def later(x, y):
    later.calls += 1
    if later.calls == 3:
        raise RuntimeError("no more")
    return x.add_(y)

later.calls = 0
"""
ADAPTED = {"Layer.forward": "layer", "add_": "add_", "noisy": "noisy"}
CANDIDATE = """
import torch

def run(x, scale, shift, weight=None, bias=None, *, norm_type="layer", eps=1e-6):
    if x.dtype == torch.float64:
        raise ValueError("no double precision")
    y = torch.nn.functional.layer_norm(x.float(), x.shape[-1:], eps=eps)
    return (y * (1 + scale.float()) + shift.float()).to(x.dtype)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "library.py").write_text(LIBRARY)
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "adapters.py").write_text(ADAPTERS)
    (tmp_path / "quick").mkdir()
    (tmp_path / "quick" / "candidate.toml").write_text(
        'op = "norm_scale_shift"\nlanguage = "python"\nentry = "kernel.py:run"\n'
    )
    (tmp_path / "quick" / "kernel.py").write_text(CANDIDATE)
    return tmp_path


def run(folder: Path, *swaps: str, options: tuple[str, ...] = (), arguments: tuple[str, ...] = ()) -> Ran:
    words = [word for swap in swaps for word in ("--swap", swap)]
    command = [sys.executable, "-m", "kernwright.cli.main", "run", *options, *words]
    environment = {name: value for name, value in os.environ.items() if name != "KERNWRIGHT_DUMPS"}
    return subprocess.run(
        [*command, "--", sys.executable, "program.py", *arguments], cwd=folder, env=environment, capture_output=True,
        text=True, check=False, timeout=180,
    )  # fmt: skip


Ran = subprocess.CompletedProcess[str]


def dumps(folder: Path, label: str) -> list[PerfDump]:
    return [read_dump(path) for path in sorted((folder / ".kernwright" / "dumps" / "program.py" / label).glob("*"))]


def test_calls_are_swapped_compared_or_left_to_the_original(folder: Path) -> None:
    alone = subprocess.run([sys.executable, "program.py"], cwd=folder, capture_output=True, text=True, check=True)
    own = [f"library:{name}=adapters.py:{adapter}" for name, adapter in ADAPTED.items()]
    done = run(folder, "library:modulate=quick", *own)
    assert done.returncode == 0, done.stderr
    modulated, layered, state, random = json.loads(done.stdout)
    expected = json.loads(alone.stdout)
    assert (state, random) == (expected[2], expected[3]), "each effect happens once, and random numbers are the same"
    assert [modulated, layered] == pytest.approx(expected[:2], rel=0.05, abs=0.5)
    lines = [line.removeprefix("kernwright: ").strip() for line in done.stderr.splitlines()]
    bound = "x=x, scale=scale, shift=shift, eps=eps; left at the op's defaults: norm_type='layer'"
    assert lines[0] == f"library:modulate = quick with {bound}"
    # Of 6 covered calls, the first of the signature is compared, and of the next five the 1st, 2nd and 4th.
    assert lines[1] == "2 call(s) swapped, 4 compared (both ran), 12 to the original"
    assert "6 to the original: it raises ValueError: no double precision" in lines
    assert "6 to the original: the op has no argument dropout, which the call passes" in lines
    assert lines.count("2 call(s) swapped, 4 compared (both ran)") == len(ADAPTED)
    assert any("largest error" in line and "against float64; the original's own error" in line for line in lines)
    assert any("this is not a verdict" in line for line in lines)
    (dump,) = dumps(folder, "quick")
    assert dump.kernwright is not None and dump.total_duration_ms
    assert dump.kernwright.settings["swap"].startswith("library:modulate=quick, library:Layer.forward=adapters.py")


@pytest.mark.parametrize(
    "said",
    [
        {
            "library:Layer.forward=adapters.py:wrong": "result 0: its largest error is",
            "library:add_=adapters.py:add_without_effect": "argument 0: ",
            "library:modulat=quick": "library has no modulat when its import ends: did you mean modulate?",
            "program.py:own=quick(x=x, scale=y, shift=y)": "was found, but never called",
        },
        {
            "library:Layer.forward=adapters.py:other_type": "the result is (float32[2, 5, 16]",
            "library:add_=adapters.py:later": "the candidate raised RuntimeError: no more",
            "library:modulate=ops.norm_scale_shift(x=y, scale=scale, shift=shift)": "name 'y' is not defined",
            "program.py:own=quick": "the function has no parameter scale or shift; its parameters are x, y",
        },
    ],
)
def test_a_swap_that_says_nothing_ends_with_status_1(folder: Path, said: dict[str, str]) -> None:
    if "program.py:own=quick" in said:
        (folder / "program.py").write_text(PROGRAM + "\nown(x, s)\n")
    done = run(folder, *said)
    assert done.returncode == 1, done.stderr
    assert [text for text in said.values() if text not in done.stderr] == [], done.stderr
    assert done.stderr.count("failed: ") == len(said) and "Traceback" not in done.stderr
    assert json.loads(done.stdout)[2] == [6.0] * 3, "the original took over"
    assert not (folder / ".kernwright").exists()


def test_turns_compare_runs_with_and_without(folder: Path) -> None:
    dump_file = ("--perf-dump-path", str(folder / "dump.json"))
    options = ("--turns", "2", "--label", "mine")
    done = run(folder, "library:Layer.forward=adapters.py:layer", options=options, arguments=dump_file)
    assert done.returncode == 0, done.stderr
    table = done.stdout.splitlines()[5:]
    assert "base (2 runs)" in table[0] and "mine (2 runs)" in table[0]
    assert {line.split("  ")[0] for line in table[1:4]} == {"end to end", "denoise", "denoise step, median"}
    assert any("2 pairs of runs that took turns" in line for line in table)
    base, mine = dumps(folder, "base"), dumps(folder, "mine")
    own = [dump.kernwright for dump in (*base, *mine)]
    assert len({held.series for held in own if held}) == 1
    assert sorted(held.turn for held in own if held and held.turn is not None) == [0, 0, 1, 1]
    assert [bool(held and held.settings.get("swap")) for held in own] == [False, False, True, True]
    assert [step.duration_ms for step in mine[0].denoise_steps_ms] == [1.0, 2.0], "the program's own dump is kept"


def test_a_program_that_fails_ends_the_run_with_its_status(folder: Path) -> None:
    (folder / "program.py").write_text("import sys\nsys.exit(7)\n")
    assert run(folder, "library:add_=adapters.py:add_", options=("--turns", "3")).returncode == 7
