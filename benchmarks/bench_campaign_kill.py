"""Kill a campaign again and again, resume it, and check that no iteration is lost or counted twice.

    python benchmarks/bench_campaign_kill.py                # 50 kills at random times, and the overhead of the loop
    python benchmarks/bench_campaign_kill.py --points all   # one kill after each record and each commit of an iteration

Each attempt is a process of its own that runs the campaign like `kernwright campaign run`, with the real judge and a
program as the agent. It is ended with SIGKILL, and the next one continues. A new campaign is started when one has
ended, until all kills are done. Every campaign must have each iteration exactly once: in its records, in the commits of
its branch, and with the content that the agent wrote in that iteration. The ledger must verify after every kill.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tiny_campaign import ProgramAgent, kernel, make_campaign, write_plan

from kernwright.campaign.campaign import Campaign
from kernwright.campaign.history import History
from kernwright.campaign.loop.run import run_campaign
from kernwright.campaign.loop.work import CampaignWork
from kernwright.campaign.record import CampaignEnded
from kernwright.campaign.repository import Repository
from kernwright.campaign.settings import Budget
from kernwright.campaign.state.book import working_on
from kernwright.campaign.state.versions import EDITED, SETTLED, Versions
from kernwright.judge.rounds.progress import NoProgress
from kernwright.ledger.verify import verify

ITERATIONS = 4
KILLS_PER_CAMPAIGN = 10
OUTER_SECONDS = 600.0

# Ideas: a gain, a wrong result, a loss and a further gain. Each iteration writes another kernel.
PLAN = (
    (kernel(1), "shorter", 2.0),
    (kernel(0, "x * 3"), "wrong", 1.5),
    (kernel(2), "longer", 1.1),
    (kernel(0), "none", 3.0),
)

Attempt = Callable[[], None]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--points", choices=("random", "all"), default="random")
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kernwright-kill-") as folder:
        os.environ["KERNWRIGHT_LOCKS"] = folder
        root = Path(folder)
        plan = write_plan(root / "plan.json", *PLAN)
        if options.points == "all":
            kills, campaigns = every_point(root, plan, options.iterations), 1
        else:
            # In a process of its own: a process that has judged has threads, and a fork of it would wait for them.
            began = time.monotonic()
            was_killed(partial(undisturbed, root, plan, options.iterations), OUTER_SECONDS)
            whole = time.monotonic() - began
            kills, campaigns = random_points(root, plan, options, whole)
    print(f"{kills} kill(s), {campaigns} campaign(s): no iteration lost or doubled, every ledger verifies")
    return 0


def random_points(root: Path, plan: Path, options: argparse.Namespace, whole: float) -> tuple[int, int]:
    """Kill attempts at random times. Return the number of kills and of campaigns.

    A kill loses the judgement that runs, so each campaign meets only some of the kills and then runs to its end.

    Args:
        whole: time of an undisturbed campaign; a kill comes within it.
    """
    rng, kills, campaigns, where = random.Random(options.seed), 0, 0, Counter[str]()
    while kills < options.kills:
        campaigns += 1
        campaign = make_campaign(root / f"campaign-{campaigns}")
        last = min(options.kills, kills + KILLS_PER_CAMPAIGN)
        while not has_ended(campaign):
            delay = rng.uniform(0.0, whole / 2) if kills < last else OUTER_SECONDS
            if was_killed(partial(work_through, campaign, plan, options.iterations), delay):
                kills += 1
                where[stage_of(campaign)] += 1
            check_ledger(campaign)
        check(campaign, options.iterations)
        print(f"campaign {campaigns} has ended after {kills} kill(s)", flush=True)
    print("killed while:", ", ".join(f"{stage} {count}" for stage, count in sorted(where.items())))
    return kills, campaigns


def every_point(root: Path, plan: Path, iterations: int) -> int:
    """Kill after each record and each commit, once. Return the number of kills."""
    campaign, kills = make_campaign(root / "campaign"), 0
    while not has_ended(campaign):
        if was_killed(partial(work_through, campaign, plan, iterations, dies=True), OUTER_SECONDS):
            kills += 1
        check_ledger(campaign)
    check(campaign, iterations)
    return kills


def work_through(campaign: Campaign, plan: Path, iterations: int, dies: bool = False) -> None:
    """Work on the campaign to its end.

    Args:
        dies: kill this process after the first record or commit that it makes.
    """

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if dies:
        made = Repository.commit

        def commit(*given: object, **named: object) -> str:
            made(*given, **named)  # type: ignore[arg-type]
            die()
            raise AssertionError("this process is dead")

        Repository.commit = commit  # type: ignore[method-assign]
    with working_on(campaign, die if dies else None) as book:
        work = CampaignWork(book, NoProgress(), lambda line: None)
        run_campaign(work, ProgramAgent(plan), Budget(iterations=iterations))


def was_killed(attempt: Attempt, delay: float) -> bool:
    """Run an attempt in a process of its own, and kill it after a delay. Return False if it had ended before."""
    process = os.fork()
    if process == 0:
        status = 1
        try:
            os.setsid()
            attempt()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    deadline = time.monotonic() + delay
    while time.monotonic() < deadline:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return outcome(status)
        time.sleep(0.002)
    os.kill(process, signal.SIGKILL)
    return outcome(os.waitpid(process, 0)[1])


def outcome(status: int) -> bool:
    if os.WIFSIGNALED(status):
        return True
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit("an attempt failed; see its error above")
    return False


# Checks


def has_ended(campaign: Campaign) -> bool:
    entries = campaign.history().entries
    return bool(entries) and isinstance(entries[-1].body, CampaignEnded)


def stage_of(campaign: Campaign) -> str:
    """Return what a killed process was doing: the kind of the last record of the campaign."""
    entries = campaign.history().entries
    return f"after {entries[-1].body.kind}" if entries else "before the first record"


def check_ledger(campaign: Campaign) -> None:
    if campaign.ledger.exists and (problems := verify(campaign.settings.ledger)):
        raise SystemExit(f"the ledger does not verify: {problems}")


def check(campaign: Campaign, iterations: int) -> None:
    """Raise SystemExit unless every iteration is there exactly once."""
    problems = [*check_records(campaign.history(), iterations), *check_commits(campaign, iterations)]
    if problems:
        raise SystemExit("; ".join(problems))


def check_records(history: History, iterations: int) -> Iterator[str]:
    counts = Counter(
        (entry.body.kind, getattr(entry.body, "number", None))
        for entry in history.entries
        if entry.body.kind.startswith("iteration_")
    )
    kinds = ("iteration_started", "iteration_edited", "iteration_ended")
    wanted = {(kind, number): 1 for kind in kinds for number in range(1, iterations + 1)}
    for key in sorted(wanted.keys() | counts.keys()):
        if counts.get(key, 0) != wanted.get(key, 0):
            yield f"{key} was recorded {counts.get(key, 0)} time(s), not {wanted.get(key, 0)}"
    once = Counter(entry.body.kind for entry in history.entries)
    for kind in ("campaign_started", "campaign_baseline", "campaign_ended"):
        if once[kind] != 1:
            yield f"{kind} was recorded {once[kind]} time(s)"


def check_commits(campaign: Campaign, iterations: int) -> Iterator[str]:
    repository = Repository(campaign.worktree)
    versions = Versions(campaign, repository)
    commits = repository.git("rev-list", f"{campaign.settings.base_commit}..HEAD").split()
    edits = {commit: number for commit in commits if (number := repository.trailer(commit, EDITED))}
    if Counter(edits.values()) != Counter(map(str, range(1, iterations + 1))):
        yield f"the branch has edits {sorted(edits.values())}"
    settled = {number for commit in commits if (number := repository.trailer(commit, SETTLED))}
    if settled != set(map(str, range(1, iterations + 1))):
        yield f"the branch has outcomes {sorted(settled)}"
    for commit, number in edits.items():
        written = repository.contents(versions.at(commit))["kernel.py"].decode()
        if written != PLAN[(int(number) - 1) % len(PLAN)][0]:
            yield f"the commit of iteration {number} has another kernel than the agent wrote"
    if repository.git("status", "--porcelain"):
        yield "the worktree differs from the last commit"


# Overhead


def undisturbed(root: Path, plan: Path, iterations: int) -> None:
    """Print the time that the loop itself takes per iteration, without agent and judge."""
    campaign = make_campaign(root / "undisturbed")
    with working_on(campaign) as book:
        work = CampaignWork(book, NoProgress(), lambda line: None)
        work.measure_baseline()
        began = time.monotonic()
        run_campaign(work, ProgramAgent(plan), Budget(iterations=iterations))
        whole = time.monotonic() - began
    done = campaign.history().iterations
    agent = sum(each.edited.seconds for each in done if each.edited)
    judge = sum(each.ended.seconds for each in done if each.ended)
    own, agent, judge = ((whole - agent - judge) / iterations, agent / iterations, judge / iterations)
    print(
        f"overhead: {own:.3f} s per iteration beyond the agent ({agent:.3f} s) and the judge ({judge:.3f} s)",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
