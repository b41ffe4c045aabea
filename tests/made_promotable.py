"""A campaign with real verdicts, made from records: one iteration with a fast kernel for `rotary` on a CPU."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from made_trace import MadeTrace

from kernwright.baselines.lookup import find_baseline
from kernwright.campaign.campaign import Campaign
from kernwright.campaign.record import (
    BaselineMeasured,
    Bottleneck,
    CampaignBody,
    CampaignStarted,
    Idea,
    IterationEdited,
    IterationEnded,
    IterationStarted,
)
from kernwright.campaign.settings import CampaignSettings
from kernwright.judge.record.verdict import Verdict
from kernwright.judge.request import JudgeRequest, judge
from kernwright.ledger.transfer import import_runs
from kernwright.tasks.candidate import load_candidate
from kernwright.tasks.task import load_task

ROOT = Path(__file__).parents[1]
NAME = "turns"
TASK = """
name = "turns"
title = "Rotary embeddings that take microseconds"
origin = "made up for the tests"
neighbours = ["S"]

[tolerance]
fp32 = { atol = 1e-5, rtol = 1e-5 }

[timing]
block_ms = 1.0
quads_per_round = 8
first_look = 1
max_rounds = 2
"""
X, ANGLES = ["B", "S", "H", "K*2"], ["S", "K"]
TOML = 'op = "rotary"\nlanguage = "cpp"\nentry = "kernel.cc:rotary"\n\n[build]\ncflags = ["-fno-math-errno"]\n'
# Each output pair is one rotation: nothing is allocated and nothing is read twice. It uses the C interface of tvm-ffi,
# because tests compile it often: it compiles in 0.1 s instead of 1.7 s with the C++ interface.
KERNEL = r"""// Contract: close. One pass: x is read once, y written once.
#include <tvm/ffi/c_api.h>

static const DLTensor& tensor(const TVMFFIAny& argument) {
  if (argument.type_index == kTVMFFIDLTensorPtr) return *static_cast<const DLTensor*>(argument.v_ptr);
  return *TVMFFITensorGetDLTensorPtr(argument.v_obj);
}

static float* data(const DLTensor& tensor) {
  return reinterpret_cast<float*>(static_cast<char*>(tensor.data) + tensor.byte_offset);
}

extern "C" TVM_FFI_DLL_EXPORT int __tvm_ffi_rotary(void*, const TVMFFIAny* arguments, int32_t, TVMFFIAny*) {
  const DLTensor &x = tensor(arguments[0]), &cos = tensor(arguments[1]), &sin = tensor(arguments[2]);
  const int64_t batch = x.shape[0], tokens = x.shape[1], heads = x.shape[2], pairs = x.shape[3] / 2;
  const float* in = data(x);
  float* out = data(tensor(arguments[3]));
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t s = 0; s < tokens; ++s) {
      const float *c = data(cos) + s * pairs, *t = data(sin) + s * pairs;
      for (int64_t h = 0; h < heads; ++h, in += 2 * pairs, out += 2 * pairs)
        for (int64_t k = 0; k < pairs; ++k) {
          out[2 * k] = in[2 * k] * c[k] - in[2 * k + 1] * t[k];
          out[2 * k + 1] = in[2 * k + 1] * c[k] + in[2 * k] * t[k];
        }
    }
  return 0;
}
"""
# The gain over it is so large that a busy machine does not hide it.
BASELINES = """
def slow(op):
    from kernwright.core.registry import shipped_ops
    reference = shipped_ops()[op].reference

    def run(*tensors, **scalars):
        for _ in range(6):
            result = reference(*tensors, **scalars)
        return result
    return run
"""
SLOW_START = 'op = "rotary"\nlanguage = "python"\nentry = "kernel.py:rotary"\n'


def tensor(shape: list[Any]) -> dict[str, Any]:
    return {"shape": shape, "dtype": "fp32"}


def task_rows() -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the rows of the task, and its grid."""
    tensors = {"inputs": {"x": tensor(X), "cos": tensor(ANGLES), "sin": tensor(ANGLES)}, "outputs": {"y": tensor(X)}}
    sizes = {"B": 1, "S": 120, "H": 4, "K": 32}
    values = 2 * 120 * 4 * 64 + 2 * 120 * 32
    row = {"id": "turned", "op": "rotary", "set": "smoke", "axes": sizes, "bytes_min": 4 * values, **tensors}
    grid = {"id": "g", "op": "rotary", "axes": {"B": [1, 2], "S": [1, 7], "H": [4], "K": [3, 32]}, "dtypes": ["fp32"]}
    return [row], grid | tensors


def git(folder: Path, *words: str) -> str:
    own = ["-c", "user.name=Ada Builder", "-c", "user.email=ada@example.org"]
    return subprocess.run(
        ["git", *own, "-C", str(folder), *words], check=True, capture_output=True, text=True
    ).stdout.strip()


@dataclass
class MadeCampaign:
    """A campaign whose records a test writes."""

    campaign: Campaign

    def iterate_once(self, judged: tuple[Path, Verdict], quiet: Any) -> MadeCampaign:
        """Record an iteration with the good kernel, from a ledger that holds its verdict."""
        ledger, verdict = judged
        import_runs(self.campaign.settings.ledger, ledger)
        self.iterate(1, GOOD, quiet, known=verdict)
        return self

    def record(self, *bodies: CampaignBody) -> str:
        with self.campaign.ledger.open_run({"campaign": self.campaign.name}) as writer:
            for body in bodies:
                writer.append(body.kind, body.model_dump(mode="json"))
            return writer.run

    @property
    def repository(self) -> Path:
        return self.campaign.settings.repository

    def commit_solution(self, files: dict[str, str], message: str) -> str:
        """Commit the solution on the campaign's branch and return the commit."""
        solution = self.campaign.solution
        shutil.rmtree(solution, ignore_errors=True)
        solution.mkdir(parents=True)
        for name, text in files.items():
            (solution / name).write_text(text)
        git(self.campaign.worktree, "add", "--all")
        git(self.campaign.worktree, "commit", "-q", "-m", message)
        return git(self.campaign.worktree, "rev-parse", "HEAD")

    def judge(self, rows: str, quiet: Any) -> Verdict:
        """Judge the solution under the campaign's name."""
        settings = self.campaign.settings
        copy = self.campaign.folder / "judged" / settings.name
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.campaign.solution, copy)
        request = JudgeRequest(
            task=settings.task, candidate=copy, baseline=settings.baseline, rows=rows, device="cpu",
            ledger=settings.ledger, metric=settings.metric, wait_s=120.0,
        )  # fmt: skip
        return judge(request, quiet)

    def iterate(
        self, number: int, files: dict[str, str], quiet: Any, rows: str = "smoke", known: Verdict | None = None
    ) -> Verdict:
        """Record one iteration with a real verdict, as an improvement.

        Args:
            known: a verdict on these files from another ledger, from which its run was imported.
        """
        name, parent = self.campaign.name, git(self.campaign.worktree, "rev-parse", "HEAD")
        idea = Idea(hypothesis="one pass instead of five operators", direction="fusion", predicted_ratio=3.0)
        commit = self.commit_solution(files, f"Iteration {number}\n\nKernwright-Iteration: {number}")
        digest = load_candidate(self.campaign.solution).digest
        self.record(
            IterationStarted(campaign=name, number=number, agent="command", parent_commit=parent, idea=idea),
            IterationEdited(
                campaign=name, number=number, ending="finished", idea=idea, commit=commit, candidate_digest=digest
            ),
        )
        verdict = known or self.judge(rows, quiet)
        assert verdict.candidate_digest == digest
        headline: Any = verdict.headline[verdict.metric]
        self.record(
            IterationEnded(
                campaign=name, number=number, verdict_run=verdict.run, verdict=verdict.verdict, improved=True,
                kept=True, ratio=getattr(headline, "geomean", None), interval=getattr(headline, "interval", None),
                noise_band=getattr(headline, "noise_band", None),
            )
        )  # fmt: skip
        return verdict


def make_task(folder: Path) -> Path:
    rows, grid = task_rows()
    folder.mkdir(parents=True)
    (folder / "task.toml").write_text(TASK)
    (folder / "workloads.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "grid.jsonl").write_text(json.dumps(grid) + "\n")
    (folder / "baselines.py").write_text(BASELINES)
    return folder


def make_repository(repository: Path, *, with_package: bool = True) -> Path:
    """Make a repository with one commit.

    Args:
        with_package: whether it is a checkout of Kernwright, as this one is.
    """
    repository.mkdir(parents=True)
    if with_package:
        left_out = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "src" / "kernwright", repository / "src" / "kernwright", ignore=left_out)
    (repository / ".gitignore").write_text(".kernwright/\n__pycache__/\n")
    git(repository, "init", "-q", "-b", "main")
    for key, value in (("user.name", "Rita Reviewer"), ("user.email", "rita@example.org")):
        git(repository, "config", key, value)
    git(repository, "add", "--all")
    git(repository, "commit", "-q", "-m", "Begin")
    return repository


def make_campaign(root: Path, *, with_package: bool = False) -> MadeCampaign:
    """Make a repository with a campaign on its own branch that has not begun to iterate."""
    repository = make_repository(root / "repository", with_package=with_package)
    task = load_task(make_task(root / "tasks" / NAME))
    settings = CampaignSettings(
        name=NAME, task=str(task.folder), task_digest=task.digest, op="rotary",
        device="cpu", baseline="slow",
        baseline_digest=find_baseline(task, "slow").digest, metric=task.policy.decides, language="cpp",
        agent="command", repository=repository, base_commit=git(repository, "rev-parse", "HEAD"),
        ledger=root / "ledger",
    )  # fmt: skip
    made = MadeCampaign(Campaign(settings))
    made.campaign.folder.mkdir(parents=True)
    (made.campaign.folder / "settings.json").write_text(settings.model_dump_json())
    git(repository, "worktree", "add", "-q", "-b", made.campaign.branch, str(made.campaign.worktree))
    start = "def rotary(x, cos, sin):\n    raise NotImplementedError\n"
    made.commit_solution({"candidate.toml": SLOW_START, "kernel.py": start}, "Start the campaign")
    made.record(CampaignStarted(campaign=NAME, settings=settings))
    bottleneck = Bottleneck(row="turned", unavailable="no GPU")
    made.record(BaselineMeasured(campaign=NAME, verdict_run="none", rows=(), bottleneck=bottleneck))
    return made


GOOD = {"candidate.toml": TOML, "kernel.cc": KERNEL}
TRITON_KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def turn(x, cos, sin, y, tokens, heads, pairs: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    token = (row // heads) % tokens
    own = tl.arange(0, block)
    mask = own < pairs
    c = tl.load(cos + token * pairs + own, mask=mask, other=0.0)
    s = tl.load(sin + token * pairs + own, mask=mask, other=0.0)
    left = tl.load(x + row * 2 * pairs + 2 * own, mask=mask, other=0.0)
    right = tl.load(x + row * 2 * pairs + 2 * own + 1, mask=mask, other=0.0)
    tl.store(y + row * 2 * pairs + 2 * own, left * c - right * s, mask=mask)
    tl.store(y + row * 2 * pairs + 2 * own + 1, right * c + left * s, mask=mask)


def rotary(x, cos, sin):
    y = torch.empty_like(x)
    batch, tokens, heads, width = x.shape
    pairs = width // 2
    turn[(batch * tokens * heads,)](x, cos, sin, y, tokens, heads, pairs, triton.next_power_of_2(pairs))
    return y
"""
TRITON_TOML = 'op = "rotary"\nlanguage = "triton"\nentry = "kernel.py:rotary"\n'
IN_TRITON = {"candidate.toml": TRITON_TOML, "kernel.py": TRITON_KERNEL}


def write_trace(path: Path) -> Path:
    """Write a trace in which one kernel takes a hundredth of the time."""
    trace = MadeTrace()
    trace.kernel("gemm_kernel", 0, 990, launched=0)
    trace.kernel("rotary_kernel", 1000, 10, launched=990)
    path.write_text(json.dumps({"traceEvents": trace.events}))
    return path


def judge_good_kernel(root: Path, quiet: Any) -> tuple[Path, Verdict]:
    """Judge the good kernel, and return the ledger that holds only this run, with the verdict."""
    made = make_campaign(root)
    made.commit_solution(GOOD, "Try")
    own = MadeCampaign(Campaign(made.campaign.settings.model_copy(update={"ledger": root / "judged"})))
    return root / "judged", own.judge("smoke", quiet)
