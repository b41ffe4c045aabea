"""The whole way of a kernel with the commands of a user: start, run, review, check of a model, promotion, export."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from made_promotable import KERNEL, TOML, git, make_repository, make_task, write_trace
from made_sglang_tree import make_sglang_tree
from typer.testing import CliRunner

from kernwright.campaign.lookup import find_campaign
from kernwright.campaign.record import Promoted
from kernwright.cli.main import app
from kernwright.ledger.verify import verify

pytestmark = [pytest.mark.slow, pytest.mark.clock]

EXPORT = "TVM_FFI_DLL_EXPORT"
TENSORS = "ffi::TensorView x, ffi::TensorView cos, ffi::TensorView sin, ffi::TensorView y"
# Computes everything several times. The number is a parameter of the space.
TEMPLATE = "// kernwright tune: begin\n#define TIMES 24\n// kernwright tune: end\n" + KERNEL.replace(
    "void rotary(", "static void turn("
).replace(
    EXPORT,
    f"""void rotary({TENSORS}) {{
  for (int times = 0; times < TIMES; ++times) {{
    turn(x, cos, sin, y);
    __asm__ volatile("" ::: "memory");
  }}
}}
{EXPORT}""",
)
SPACE = "[parameters.TIMES]\nchoices = [24, 1]\ndefault = 24\n"
AGENT = f"""
import json
from pathlib import Path
solution = Path("solution")
(solution / "kernel.py").unlink()
(solution / "candidate.toml").write_text({TOML!r})
(solution / "kernel.cc").write_text({KERNEL!r})
idea = {{"hypothesis": "one pass instead of five operators", "direction": "fusion", "predicted_ratio": 3.0}}
Path("idea.json").write_text(json.dumps(idea))
"""
REVIEWER = 'open("findings.json", "w").write(\'{"decision": "approved", "why": "read diff.patch and all sources"}\')'


def campaign(*words: str) -> str:
    """Return the output of a command of `kernwright campaign`, which must succeed."""
    result = CliRunner().invoke(app, ["campaign", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def folder(tmp_path: Path, private_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a checkout of Kernwright, which is the working directory, and a task."""
    make_task(tmp_path / "turns")
    monkeypatch.chdir(make_repository(tmp_path / "repository"))
    return tmp_path


def options(folder: Path, agent: str) -> list[str]:
    """Write what an agent needs, and return the options of `start` for it."""
    if agent == "tuner":
        given = folder / "given"
        given.mkdir()
        for name, text in {"candidate.toml": TOML, "kernel.cc": TEMPLATE, "space.toml": SPACE}.items():
            (given / name).write_text(text)
        return ["--from", str(given)]
    (folder / "agent.py").write_text(AGENT)
    command = shlex.join([sys.executable, str(folder / "agent.py")])
    return ["--op", "rotary", "--agent", "command", "--agent-command", command]


@pytest.mark.parametrize("agent", ["tuner", "command"])
def test_from_the_start_to_the_export(folder: Path, agent: str) -> None:
    main = git(Path(), "rev-parse", "main")
    task = ["start", str(folder / "turns"), "--name", "turns", "--baseline", "slow", "--iterations", "1"]
    assert "campaign run turns" in campaign(*task, *options(folder, agent))
    assert "ended: all 1 iteration(s) of the budget are used" in campaign("run")
    own = find_campaign()
    best = own.history().best
    assert best is not None and best.edited is not None and best.ended is not None
    assert best.started.agent == agent and best.ended.confirmed_run is not None

    reviewer = ["--reviewer-command", shlex.join([sys.executable, "-c", REVIEWER])]
    assert "recorded: approved by" in campaign("review", *(reviewer if agent == "command" else ["--approve"]))
    assert campaign("check-model", "--arithmetic", f"{write_trace(folder / 'trace.json')}:2").startswith("passes")
    assert "NOT MET" not in campaign("promote")
    promoted = own.history().latest(Promoted)
    assert promoted is not None and promoted.candidate_digest == best.edited.candidate_digest
    place = "src/kernwright/ops/rotation/promoted/rotary_cpu/kernel.cc"
    assert git(Path(), "show", f"{promoted.branch}:{place}") == (own.solution / "kernel.cc").read_text().strip()
    assert git(Path(), "rev-parse", "main") == main

    tree = make_sglang_tree(folder / "sglang")
    campaign("export", "--to", "sglang", str(tree), "--apply")
    assert "the exported copy is the best version" in campaign("export", "--to", "sglang", str(tree), "--check")
    campaign("artifacts", str(folder / "pull-request"))
    assert (folder / "pull-request" / "README.md").is_file()
    assert verify(own.settings.ledger) == []
