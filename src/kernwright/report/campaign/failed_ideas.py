"""FailedIdeas: pages of the wiki with the ideas of campaigns that brought no improvement, one for each task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from kernwright.campaign.history import Iteration
from kernwright.report.campaign.evidence_pages import CHECKS, COMMAND, FOLDER
from kernwright.report.campaign.recorded_campaign import EVIDENCE, RecordedCampaign, result_of
from kernwright.report.markdown import escaped
from kernwright.wiki.index import FAILED

READING = """\
*Over the best* is the speedup over the best version at that time. *Slower* means that the intervals of both versions
do not overlap and that the difference is larger than the noise band. Otherwise the page says *no difference shown*. A
result holds only for the rows and the GPU of its campaign. If an idea changed several things, it is not known which one
of them did not help."""


def failed_idea_files(campaigns: Sequence[RecordedCampaign], docs: Path) -> dict[Path, str]:
    """Return the text of every page of failed ideas, by path. A task without failed ideas has no page."""
    tasks = sorted({each.task for each in campaigns if each.failed_ideas})
    pages = {task: [each for each in campaigns if each.task == task and each.failed_ideas] for task in tasks}
    return {
        docs / "wiki" / f"{FAILED}{task.replace('_', '-')}.md": "\n".join(_page(task, own)) + "\n"
        for task, own in pages.items()
    }


def _page(task: str, campaigns: Sequence[RecordedCampaign]) -> Iterator[str]:
    ops = list(dict.fromkeys(each.settings.op for each in campaigns))
    architectures = sorted({each.architecture for each in campaigns})
    title = f"What did not work: {task}"
    yield "---"
    yield f'title: "{title}"'
    yield f"topic: failed ideas, tried before, {', '.join(ops)}"
    yield "bottleneck: []"
    yield f"architectures: [{', '.join(architectures)}]"
    yield f"ops: [{', '.join(ops)}]"
    yield f"evidence: [{', '.join(f'docs/{FOLDER}/{each.name}.md' for each in campaigns)}]"
    yield "---"
    yield f"# {title}"
    yield ""
    yield f"Ideas for {', '.join(f'`{op}`' for op in ops)} that were judged in a campaign and brought no improvement."
    yield f"Generated from `{EVIDENCE.as_posix()}` by `{COMMAND}`."
    yield ""
    yield READING
    for campaign in campaigns:
        own = campaign.settings
        yield ""
        yield f"## {campaign.name}"
        yield ""
        rows = f"rows `{own.rows}`" if own.rows else "the usual rows"
        yield f"`{own.op}` in {own.language} on {campaign.device}: {rows}, metric `{own.metric}`"
        yield f"([all iterations](../{FOLDER}/{campaign.name}.md))."
        yield ""
        yield from (_line(campaign, each) for each in campaign.failed_ideas)
    yield ""
    yield "## How to check"
    yield ""
    yield "```"
    yield from (f"kernwright {words} --ledger {EVIDENCE.as_posix()}" for words in CHECKS)
    yield "```"


def _line(campaign: RecordedCampaign, iteration: Iteration) -> str:
    idea, ended = iteration.idea, iteration.ended
    assert ended is not None
    figure = ""
    if ended.against_best is not None:
        place = f'../{FOLDER}/{campaign.name}.md#iterations "{iteration.number} | over the best"'
        figure = f" [{ended.against_best:.3f}x]({place}) over the best,"
    direction = escaped(idea.direction) if idea else "unknown direction"
    told = escaped(idea.hypothesis) if idea else "(none given)"
    reason = f" ({escaped(ended.reason)})" if ended.reason else ""
    result = result_of(campaign.history, iteration)
    return f"- Iteration {iteration.number}, {direction}:{figure} {result}{reason}. Idea: {told}"
