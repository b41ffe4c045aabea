"""Promotion: write the best version into kernwright.ops, on a branch of the checkout."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from kernwright.campaign.campaign import BRANCHES, Campaign
from kernwright.campaign.history import History
from kernwright.campaign.promotion.judged_runs import judge_version
from kernwright.campaign.promotion.kernel_package import OPS, KernelPackage, backend_for
from kernwright.campaign.promotion.proven_forms import proven_forms
from kernwright.campaign.promotion.requirements import PromotionCase
from kernwright.campaign.record import BaselineMeasured, IterationEnded, Promoted, VersionJudged
from kernwright.campaign.repository import Repository
from kernwright.campaign.review.findings import ReviewState
from kernwright.campaign.review.review import record_in_own_run
from kernwright.campaign.version_verdicts import deciding_headline
from kernwright.core.errors import KernwrightError
from kernwright.core.registry import shipped_families
from kernwright.judge.rounds.progress import Progress
from kernwright.ledger.transfer import pack_runs
from kernwright.tasks.candidate import Candidate, load_candidate

EVIDENCE = PurePosixPath("evidence/campaigns")


class NotReady(KernwrightError):
    """Requirements of the promotion are not met. The message lists each with the command that helps."""

    def __init__(self, case: PromotionCase) -> None:
        lines = [f"  - {own.name}: {own.why}\n      {own.command}" for own in case.missing]
        super().__init__(
            f"the best version of {case.campaign.name} cannot be promoted; not met:\n" + "\n".join(lines),
            "run the commands above, then promote again",
        )


@dataclass(frozen=True)
class Promotion:
    """The promotion of a campaign's best version."""

    campaign: Campaign

    @property
    def branch(self) -> str:
        return f"{BRANCHES}/promote-{self.campaign.name}"

    @property
    def worktree(self) -> Path:
        """Return the working tree of the branch, which stays, so that the promoted kernel can be tried."""
        return self.campaign.folder / "promoted"

    def case(self) -> PromotionCase:
        """Return the case. Raise KernwrightError if a candidate of this kind cannot be promoted."""
        case = PromotionCase.of(self.campaign)
        settings = self.campaign.settings
        export = f"kernwright campaign export {settings.name} --to sglang DIR, or copy the candidate into your project"
        if case.task.file.definitions is not None:
            raise KernwrightError(
                f"task {case.task.name} defines its own ops in {case.task.file.definitions}; kernwright.ops lacks them",
                export,
            )
        if not (settings.repository / OPS / "__init__.py").is_file():
            raise KernwrightError(
                f"{settings.repository} is no checkout of Kernwright: it has no kernwright.ops to promote into", export
            )
        return case

    def judge_missing(self, progress: Progress) -> None:
        """Make the judgements that the promotion needs and that are not recorded yet."""
        case = self.case()
        if case.digest_problem() is not None:
            return  # a judgement on a changed task would count for nothing
        while missing := self.case().runs.missing:
            before = len(missing)
            judge_version(case.version, missing[0], progress)
            if len(self.case().runs.missing) >= before:
                raise KernwrightError(
                    f"a judgement on {missing[0]} left no evidence", "see `kernwright ledger show`, and repeat"
                )

    def promote(self) -> Promoted:
        """Write the kernel and its evidence to a branch. Raise NotReady if a requirement is not met."""
        case = self.case()
        if case.missing:
            raise NotReady(case)
        self._refuse_existing(case)
        repository = Repository(self.campaign.settings.repository)
        base = repository.head
        repository.git("worktree", "add", "-q", "-b", self.branch, str(self.worktree), base)
        try:
            files = self._write(case)
            promoted = self._commit(case, files)
        except BaseException:
            repository.git("worktree", "remove", "--force", str(self.worktree))
            repository.git("branch", "-D", self.branch)
            raise
        record_in_own_run(self.campaign, promoted)
        return promoted

    def _refuse_existing(self, case: PromotionCase) -> None:
        repository = Repository(self.campaign.settings.repository)
        if repository.commit_of(f"refs/heads/{self.branch}") is not None or self.worktree.exists():
            known = [own for own in case.history.all(Promoted) if own.candidate_digest == case.version.digest]
            words = "this version was promoted already" if known else "an earlier version was promoted"
            remove = f"git worktree remove --force {self.worktree}; git branch -D {self.branch}"
            raise KernwrightError(f"the branch {self.branch} exists: {words}", f"merge it, or remove it: {remove}")

    # The files

    def _write(self, case: PromotionCase) -> list[PurePosixPath]:
        package = self._package(case)
        kernels = self.worktree / package.index.parent
        known = sorted(path.parent.name for path in kernels.glob("*/__init__.py"))
        family_text = (self.worktree / package.family_file).read_text(encoding="utf-8")
        files = package.files(family_text, known)
        for path, data in files.items():
            (self.worktree / path).parent.mkdir(parents=True, exist_ok=True)
            (self.worktree / path).write_bytes(data)
        return [*files, *self._pack(case)]

    def _package(self, case: PromotionCase) -> KernelPackage:
        settings = self.campaign.settings
        op = case.task.ops[settings.op]
        candidate = self._candidate(case)
        judged = {row.id for verdict in case.runs.verdicts for row in verdict.rows}
        forms = proven_forms(case.task, op, judged)
        if not forms:
            raise KernwrightError("no judged row has all tensors at aligned addresses", "add such rows to the task")
        return KernelPackage(
            op=op,
            family=shipped_families()[op.name],
            candidate=candidate,
            backend=backend_for(candidate, settings.device),
            machine=_machine(case),
            forms=forms,
            provenance=self._provenance(case),
        )

    def _candidate(self, case: PromotionCase) -> Candidate:
        """Return the candidate, read into memory from a folder that is removed again."""
        with tempfile.TemporaryDirectory(prefix="kernwright-promote-") as scratch:
            folder = Path(scratch) / self.campaign.name
            case.version.write(folder)
            candidate = load_candidate(folder)
            _ = candidate.digest  # reads all sources
        return candidate

    def _provenance(self, case: PromotionCase) -> dict[str, Any]:
        settings, latest = self.campaign.settings, case.runs.full_runs[-1]
        headline, check = deciding_headline(latest), case.model_check
        decision = ReviewState.of(case.history, case.version.digest).decision
        return {
            "campaign": settings.name,
            "iteration": case.version.number,
            "commit": case.version.commit,
            "candidate_digest": case.version.digest,
            "task": case.task.name,
            "task_digest": settings.task_digest,
            "baseline": settings.baseline,
            "baseline_digest": settings.baseline_digest,
            "metric": settings.metric,
            "speedup": round(headline.geomean, 4) if headline else None,
            "rows": self._rows(case),
            "runs": [verdict.run for verdict in case.runs.verdicts],
            "review": {"reviewer": decision[1].reviewer, "run": decision[0]} if decision else None,
            "model_check": {"method": check.method, "summary": check.summary} if check else None,
            "device": settings.device,
            "hardware": latest.provenance.get("hardware", {}),
            "libraries": latest.provenance.get("libraries", {}),
            "evidence": str(self._archive()),
        }

    @staticmethod
    def _rows(case: PromotionCase) -> int:
        return len({row.id for verdict in case.runs.verdicts for row in verdict.rows})

    # The evidence

    def _archive(self) -> PurePosixPath:
        return EVIDENCE / f"{self.campaign.name}.tar.xz"

    def _pack(self, case: PromotionCase) -> Iterator[PurePosixPath]:
        """Write the runs of the campaign to an archive of the branch."""
        archive = self._archive()
        pack_runs(self.campaign.settings.ledger, sorted(_runs(case.history, case)), self.worktree / archive)
        yield archive
        yield archive.with_name(archive.name.removesuffix(".tar.xz") + ".heads.jsonl")

    def _commit(self, case: PromotionCase, files: list[PurePosixPath]) -> Promoted:
        repository = Repository(self.worktree)
        repository.git("add", "--force", "--", *map(str, files))
        settings = self.campaign.settings
        subject = f"Promote {settings.op} of campaign {settings.name}"
        body = (
            f"Iteration {case.version.number}, candidate {case.version.digest}.\n"
            + "".join(f"{own.name}: {own.why}\n" for own in case.requirements)
            + f"\nKernwright-Campaign: {settings.name}\n"
        )
        tree = repository.git("write-tree").strip()
        commit = repository.git("commit-tree", tree, "-p", repository.head, "-m", subject, "-m", body).strip()
        repository.git("update-ref", f"refs/heads/{self.branch}", commit)
        return Promoted(
            campaign=settings.name,
            candidate_digest=case.version.digest,
            commit=case.version.commit,
            branch=self.branch,
            branch_commit=commit,
            verdict_runs=tuple(verdict.run for verdict in case.runs.verdicts),
            files=tuple(map(str, files)),
        )


def _runs(history: History, case: PromotionCase) -> set[str]:
    """Return the runs with the campaign's own records and with all verdicts that they name."""
    named = {entry.run for entry in history.entries}
    named |= {verdict.run for verdict in case.runs.verdicts}
    for ended in history.all(IterationEnded):
        named |= {run for run in (ended.verdict_run, ended.confirmed_run) if run}
    named |= {own.verdict_run for own in history.all(BaselineMeasured)}
    named |= {own.verdict_run for own in history.all(VersionJudged)}
    return named & set(case.campaign.ledger.runs())


def _machine(case: PromotionCase) -> str:
    """Return the architecture that the kernel was judged on: `sm_90` for a GPU, or the kind of processor."""
    if case.campaign.settings.device == "cpu":
        return platform.machine()
    hardware = case.runs.full_runs[-1].provenance.get("hardware", {})
    if not (found := str(hardware.get("capability", ""))):
        raise KernwrightError(
            "the verdict does not name the architecture of its GPU", "judge it again: kernwright campaign promote"
        )
    return f"sm_{found.replace('.', '')}"
