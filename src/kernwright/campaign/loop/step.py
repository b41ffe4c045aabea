"""Step: one iteration of a campaign, from the idea to the commit of its outcome.

Each part ends with a record or a commit. A process that resumes a killed one finds the last finished part from them and
repeats the part that was interrupted, so that no iteration is lost and none is counted twice.
"""

from __future__ import annotations

import time
from dataclasses import replace

from kernwright.campaign.agents.agent import HUMAN, Agent, AgentResult, Assignment
from kernwright.campaign.agents.guard.agent_folder import remove_unsafe
from kernwright.campaign.files.agent_folder import write_generated_files
from kernwright.campaign.history import Iteration
from kernwright.campaign.loop.judging import NotJudged
from kernwright.campaign.loop.outcome import Figures, improves, judged_prediction, next_step, relative
from kernwright.campaign.loop.stop_rules import Refusal, avoided_directions, refusals
from kernwright.campaign.loop.work import CampaignWork
from kernwright.campaign.record import Idea, IterationEdited, IterationEnded, IterationStarted, direction_tag
from kernwright.campaign.state.standing import START, StandingVersion, standing_of, target_of
from kernwright.core.errors import KernwrightError
from kernwright.core.plain_text import plain
from kernwright.judge.record.verdict import Outcome
from kernwright.ledger.blobs import blob_reference


class StepRefused(KernwrightError):
    """The stop rules forbid the next iteration."""

    def __init__(self, found: list[Refusal]) -> None:
        self.refusals = tuple(found)
        super().__init__("; ".join(each.why for each in found), "; then ".join(each.remedy for each in found))


class NothingChanged(KernwrightError):
    """There is no edit to judge."""


class UnjudgedEdit(KernwrightError):
    """solution/ has an edit of a person, and an agent cannot start."""


def check_allowed(work: CampaignWork, direction: str | None = None) -> None:
    """Raise StepRefused if the stop rules forbid another iteration."""
    if found := refusals(work.book.history, direction=direction):
        raise StepRefused(found)


def judge_start(work: CampaignWork) -> Iteration:
    """Judge a starting version that the user gave, as iteration 1. It is kept even if it is not faster."""
    started = IterationStarted(
        campaign=work.campaign.name,
        number=1,
        agent=START,
        parent_commit=work.versions.repository.head,
        idea=Idea(hypothesis="the starting version, as it was given", direction=START),
    )
    work.book.append(started)
    return finish(work, None)


def step_by_hand(work: CampaignWork, idea: Idea) -> Iteration:
    """Do one iteration with the edit that a person made in the worktree."""
    check_allowed(work, idea.direction)
    if (problem := work.versions.problem()) is not None:
        raise problem
    if work.versions.edit() == work.versions.at(work.standing_commit):
        raise NothingChanged(
            f"{work.campaign.solution} is the same as the best version", "edit it first; the idea was not recorded"
        )
    _begin(work, HUMAN, _clean(idea))
    return finish(work, None)


def step_with(work: CampaignWork, agent: Agent, assignment: Assignment) -> Iteration:
    """Do one iteration with an agent."""
    check_allowed(work)
    if work.versions.problem() is not None or work.versions.edit() != work.versions.at(work.standing_commit):
        raise UnjudgedEdit(
            f"{work.campaign.solution} has an edit that was not judged",
            "judge it with `kernwright campaign step --hypothesis TEXT --direction TAG`, or discard it with "
            f"`git -C {work.campaign.worktree} checkout .`",
        )
    _begin(work, agent.name, None)
    return finish(work, agent, assignment)


def finish(work: CampaignWork, agent: Agent | None, assignment: Assignment | None = None) -> Iteration:
    """Continue the open iteration after its last record, and finish it. Return it.

    Args:
        agent: repeats the edit if it was interrupted; None if a person edits.
        assignment: limits of the agent.
    """
    iteration = _open(work)
    if iteration.edited is None:
        work.book.append(_edited(work, iteration, agent, assignment))
        iteration = _open(work)
    work.book.append(_ended(work, iteration))
    settle(work)
    return work.book.history.iterations[-1]


def settle(work: CampaignWork) -> None:
    """After an iteration, set worktree and branch to the best version and write its files. May be called again."""
    iterations = work.book.history.iterations
    if not iterations or iterations[-1].ended is None or work.versions.is_settled(iterations[-1].number):
        return
    last, ended = iterations[-1], iterations[-1].ended
    commit = last.edited.commit if last.edited else None
    # A person may have begun the next edit already. It stays in the worktree.
    is_untouched = last.started.agent != HUMAN or (commit and work.versions.edit() == work.versions.at(commit))
    if not ended.kept and is_untouched:
        work.versions.restore(work.standing_commit)
    write_generated_files(work.campaign, work.book.history, avoided_directions(work.book.history))
    work.versions.commit_settled(last.number, work.standing_commit, _headline(ended))


def _begin(work: CampaignWork, agent: str, idea: Idea | None) -> None:
    number = work.last_number + 1
    work.tell(f"iteration {number}: {agent}")
    parent = work.versions.repository.head
    work.book.append(
        IterationStarted(campaign=work.campaign.name, number=number, agent=agent, parent_commit=parent, idea=idea)
    )


def _open(work: CampaignWork) -> Iteration:
    iteration = work.book.history.open_iteration
    assert iteration is not None, "an iteration was begun"
    return iteration


# The edit


def _edited(
    work: CampaignWork, iteration: Iteration, agent: Agent | None, assignment: Assignment | None
) -> IterationEdited:
    """Return the record of the edit, after its commit."""
    number, started = iteration.number, iteration.started
    if started.agent == START:
        edited = IterationEdited(campaign=work.campaign.name, number=number, ending="finished", idea=started.idea)
        return _with_digest(work, edited.model_copy(update={"commit": started.parent_commit}))
    if (recorded := work.versions.recorded_edit(number, started.parent_commit)) is not None:
        return recorded
    if started.agent == HUMAN or agent is None:
        return _commit(work, iteration, AgentResult(ending="finished", idea=started.idea))
    # An interrupted agent may have left half an edit, and links in place of folders.
    remove_unsafe(work.campaign.agent_folder, work.campaign.solution)
    work.versions.restore(work.standing_commit)
    wanted = replace(assignment or Assignment(work.campaign, number), number=number)
    wanted = replace(wanted, avoid_directions=avoided_directions(work.book.history))
    return _commit(work, iteration, agent.edit(wanted, work.progress))


def _commit(work: CampaignWork, iteration: Iteration, result: AgentResult) -> IterationEdited:
    """Return the record of an agent's result. An edit is committed, unless the agent changed protected files."""
    transcript = result.transcript
    idea = _clean(result.idea or iteration.started.idea) if (result.idea or iteration.started.idea) else None
    problem = work.versions.problem()
    if problem is not None and iteration.started.agent == HUMAN:
        raise problem  # the files are a person's work
    ending, reason = result.ending, result.reason
    if ending == "tampered" or problem is not None:
        work.versions.restore(work.standing_commit)
        if problem is not None and ending == "finished":
            ending, reason = "failed", _in_solution(problem, work)
    changed = work.versions.edit() != work.versions.at(work.standing_commit)
    if not changed and ending == "finished":
        ending = "no_change"
    edited = IterationEdited(
        campaign=work.campaign.name,
        number=iteration.number,
        ending=ending,
        idea=idea,
        reason=plain(reason, newlines=True),
        seconds=result.seconds,
        cost_usd=result.cost_usd,
        transcript=blob_reference(work.campaign.ledger.write_blob(transcript)) if transcript else None,
        note=plain(result.note, newlines=True),
    )
    return _with_digest(work, edited, is_new=True) if changed else edited


def _in_solution(problem: KernwrightError, work: CampaignWork) -> str:
    """Return a problem with the candidate's files, with the paths that the agent knows."""
    return f"{problem.cause}; {problem.remedy}".replace(str(work.campaign.solution), "solution")


def _with_digest(work: CampaignWork, edited: IterationEdited, is_new: bool = False) -> IterationEdited:
    """Return the record with the candidate's digest and its commit, which is made if the edit is new."""
    folder = work.campaign.solution if is_new else work.export(str(edited.commit))
    try:
        digest = work.judging.candidate(folder).digest
    except NotJudged:
        digest = None  # the outcome has the reason
    edited = edited.model_copy(update={"candidate_digest": digest})
    return work.versions.commit_edit(edited) if is_new else edited


def _clean(idea: Idea | None) -> Idea:
    """Return an idea without control characters and without characters that cannot be encoded."""
    assert idea is not None
    hypothesis, direction = (
        plain(text.encode("utf-8", "replace").decode(), newlines=newlines)
        for text, newlines in ((idea.hypothesis, True), (" ".join(idea.direction.split()), False))
    )
    return Idea(hypothesis=hypothesis, direction=direction.strip() or "unknown", predicted_ratio=idea.predicted_ratio)


# The outcome


def _ended(work: CampaignWork, iteration: Iteration) -> IterationEnded:
    """Judge the edit and return the record of the outcome."""
    edited = iteration.edited
    assert edited is not None, "an edit is judged after its record"
    standing = standing_of(work.book.history, before=iteration.number)
    if edited.commit is None:
        reason = edited.reason or "the candidate was not changed"
        return _unjudged(work, iteration, standing, f"{edited.ending}: {reason}")
    idea = edited.idea
    avoided = avoided_directions(work.book.history)
    if idea is not None and direction_tag(idea.direction) in avoided and iteration.started.agent != HUMAN:
        return _unjudged(work, iteration, standing, f"refused: direction {idea.direction!r} is one of {avoided}")
    if (earlier := _judged_before(work, iteration)) is not None:
        return earlier
    folder = work.export(edited.commit)
    try:
        candidate = work.judging.candidate(folder)
    except NotJudged as error:
        return _unjudged(work, iteration, standing, f"{error.cause}; {error.remedy}")
    if candidate.digest != edited.candidate_digest:
        raise KernwrightError(
            f"commit {edited.commit[:12]} has another candidate than iteration {iteration.number} recorded",
            "the branch was changed: restore it, for instance with `git reflog`",
        )
    began = time.monotonic()
    work.tell(f"iteration {iteration.number}: verdict")
    first = work.judging.version(folder)
    confirmed: Figures | None = None
    improved, reason = improves(first, standing), "; ".join(first.reasons[:3])
    if improved:
        work.tell(f"iteration {iteration.number}: again, with fresh seeds")
        again = work.judging.version(folder)
        improved = improves(again, standing)
        confirmed = again if improved else None
        if not improved:
            reason = (
                f"the gain was not confirmed with fresh seeds: the verdict of run {again.run} is {again.verdict}"
                + (f", {again.ratio:.3f}x over the baseline" if again.ratio is not None else "")
            )
    return _judged(work, iteration, standing, first, confirmed, reason, time.monotonic() - began)


def _judged(
    work: CampaignWork,
    iteration: Iteration,
    standing: StandingVersion,
    first: Figures,
    confirmed: Figures | None,
    reason: str,
    seconds: float,
) -> IterationEnded:
    figures, improved = confirmed or first, confirmed is not None
    idea = iteration.idea
    ratio = figures.ratio if improved and figures.ratio is not None else standing.ratio
    return IterationEnded(
        campaign=work.campaign.name,
        number=iteration.number,
        verdict_run=first.run,
        verdict=figures.verdict,
        ratio=figures.ratio,
        interval=figures.interval,
        noise_band=figures.noise_band,
        rows=figures.rows,
        against_best=relative(figures, standing),
        prediction=judged_prediction(idea, figures, standing),
        improved=improved,
        confirmed_run=confirmed.run if confirmed else None,
        kept=improved or iteration.started.agent == START,
        reason=reason,
        next_step=next_step(figures, improved, target_of(work.book.history), ratio),
        seconds=seconds,
    )


def _unjudged(work: CampaignWork, iteration: Iteration, standing: StandingVersion, reason: str) -> IterationEnded:
    return IterationEnded(
        campaign=work.campaign.name,
        number=iteration.number,
        prediction=judged_prediction(iteration.idea, None, standing),
        improved=False,
        kept=iteration.started.agent == START,
        reason=reason,
        next_step=next_step(None, False, None, standing.ratio),
    )


def _judged_before(work: CampaignWork, iteration: Iteration) -> IterationEnded | None:
    """Return the outcome of an earlier iteration with the same candidate; None if there is none."""
    digest = iteration.edited.candidate_digest if iteration.edited else None
    for each in work.book.history.iterations:
        same = each.edited is not None and each.edited.candidate_digest == digest and digest is not None
        if each.number < iteration.number and same and each.ended and each.ended.verdict_run:
            return each.ended.model_copy(
                update={
                    "number": iteration.number,
                    "improved": False,
                    "confirmed_run": None,
                    "kept": False,
                    "prediction": "undecided",
                    "reason": f"judged before: the same candidate as iteration {each.number}",
                    "next_step": "make an edit that was not tried",
                    "seconds": 0.0,
                }
            )
    return None


def _headline(ended: IterationEnded) -> str:
    verdict: Outcome | str = ended.verdict or "not judged"
    ratio = f", {ended.ratio:.3f}x" if ended.ratio is not None else ""
    return f"{verdict}{ratio}, {'kept' if ended.kept else 'not kept'}"
