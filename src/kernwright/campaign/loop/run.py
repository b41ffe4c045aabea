"""Run: repeat iterations until a stop rule or a limit ends the campaign."""

from __future__ import annotations

from kernwright.campaign.agents.agent import HUMAN, NOTHING_LEFT, Agent, Assignment
from kernwright.campaign.history import Iteration
from kernwright.campaign.loop.step import finish, judge_start, settle, step_with
from kernwright.campaign.loop.stop_rules import Refusal, refusals
from kernwright.campaign.loop.work import CampaignWork
from kernwright.campaign.settings import Budget
from kernwright.campaign.start.start import GIVEN
from kernwright.campaign.state.standing import START, usage_of
from kernwright.core.errors import KernwrightError

LEAST_AGENT_S = 1.0
MOST_WITHOUT_EDIT = 5  # calls of an agent in a row that edit nothing; a broken agent fails thousands of times an hour


def prepare(work: CampaignWork, agent: Agent | None, assignment: Assignment | None = None) -> list[Iteration]:
    """Do everything that comes before the next iteration. Return the iterations that this ended.

    The baseline is measured, an iteration that was interrupted is finished, and a given starting version is judged.

    Args:
        agent: repeats the edit of an interrupted iteration.
        assignment: limits of the agent.
    """
    work.versions.repository.refresh_index()  # a process that was killed after a commit left the index as it was
    work.measure_baseline()
    done = []
    if (interrupted := work.book.history.open_iteration) is not None:
        name = interrupted.started.agent
        if interrupted.edited is None and name not in (START, HUMAN) and (agent is None or agent.name != name):
            raise KernwrightError(
                f"iteration {interrupted.number} of agent {name} was interrupted and is not finished",
                f"finish it with `kernwright campaign step {work.campaign.name} --agent {name}`",
            )
        work.tell(f"iteration {interrupted.number} is continued")
        done.append(finish(work, agent, assignment))
    settle(work)
    if not work.book.history.iterations and (work.campaign.folder / GIVEN).exists():
        work.tell("iteration 1: the starting version")
        done.append(judge_start(work))
    return done


def run_campaign(work: CampaignWork, agent: Agent, limits: Budget, agent_limit_s: float | None = None) -> str:
    """Repeat iterations until the campaign ends. Return the reason, which is recorded.

    After a kill or Ctrl-C, the same call continues: limits count everything that the campaign has used so far.

    Args:
        limits: limits in addition to the campaign's own budget.
        agent_limit_s: the longest time of one call of the agent.
    """
    prepare(work, agent, _assignment(work, limits, agent_limit_s))
    without_edit = 0
    while True:
        found = refusals(work.book.history, limits)
        reasons = [each.why for each in found if each.is_final]
        if why := _exhausted(work, agent):
            reasons.append(why)
        elif without_edit == MOST_WITHOUT_EDIT:
            last = work.book.history.iterations[-1].edited
            told = ": ".join(filter(None, (last.ending, last.reason))) if last else ""
            reasons.append(f"agent {agent.name} edited nothing in {without_edit} calls, the last one {told}")
        if reasons:
            work.end("; ".join(reasons))
            return "; ".join(reasons)
        _lift(work, found)
        done = step_with(work, agent, _assignment(work, limits, agent_limit_s))
        without_edit = 0 if done.edited and done.edited.commit else without_edit + 1


def _exhausted(work: CampaignWork, agent: Agent) -> str | None:
    """Return why the agent has nothing left to try, if its last answer was that."""
    last = work.book.history.iterations[-1] if work.book.history.iterations else None
    if last is None or last.edited is None or last.started.agent != agent.name:
        return None
    said = last.edited.reason
    return f"agent {agent.name}: {said}" if last.edited.commit is None and said.startswith(NOTHING_LEFT) else None


def _lift(work: CampaignWork, found: list[Refusal]) -> None:
    """Meet the conditions after iterations without improvement: a fresh profile, and all records read again."""
    rules = {each.rule for each in found}
    if "profile" in rules:
        work.take_profile()
    if "reread" in rules:
        work.tell(f"ledger read again: {work.reread().summary}")


def _assignment(work: CampaignWork, limits: Budget, agent_limit_s: float | None) -> Assignment:
    """Return the assignment of the next iteration, with the time and cost that remain."""
    used, own = usage_of(work.book.history), work.campaign.settings.budget
    seconds = [(budget.minutes - used.minutes) * 60 for budget in (own, limits) if budget.minutes is not None]
    costs = [budget.cost_usd - used.cost_usd for budget in (own, limits) if budget.cost_usd is not None]
    if agent_limit_s is not None:
        seconds.append(agent_limit_s)
    return Assignment(
        campaign=work.campaign,
        number=work.last_number + 1,
        time_limit_s=max(LEAST_AGENT_S, min(seconds)) if seconds else None,
        cost_limit_usd=max(0.0, min(costs)) if costs else None,
    )
