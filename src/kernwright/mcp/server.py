"""The MCP server: its tools and resources, and the report of their errors."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from inspect import getdoc, signature
from pathlib import Path
from typing import Any

from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ToolError
from mcp.server.mcpserver.resources import ResourceSecurity
from mcp.server.mcpserver.resources.templates import ResourceSecurityError
from mcp.types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import ValidationError

from kernwright.core.errors import KernwrightError, did_you_mean
from kernwright.core.version import __version__
from kernwright.mcp.folders import AllowedFolders
from kernwright.mcp.tools.campaigns import CampaignTools
from kernwright.mcp.tools.candidates import CandidateTools
from kernwright.mcp.tools.judgement import JudgeTools
from kernwright.mcp.tools.resources import HTML, JSON, MARKDOWN, Resources
from kernwright.mcp.tools.scores import ScoreCache
from kernwright.mcp.tools.tasks import TaskTools
from kernwright.mcp.tools.traces import TraceTools
from kernwright.mcp.tools.verdicts import VerdictTools
from kernwright.mcp.tools.wiki import WikiTools

INSTRUCTIONS = """Kernwright judges GPU and CPU kernels against pinned baselines and keeps the evidence.
To improve a kernel: find a task (tasks_list, task_show), write a candidate (candidate_write), check it with judge and
quick=true until it is correct, then judge it in full: only that is evidence. The verdict `faster` means that the whole
confidence interval lies above the measured noise. Every answer names the next useful calls."""
MOST_PROBLEMS = 5
LONGEST_TEXT = 2000  # characters of a cause or a remedy
logger = logging.getLogger(__name__)


class KernwrightServer(MCPServer[Any]):
    """The server. Every error of a tool has a cause and a remedy; tracebacks go to standard error only."""

    def __init__(self, folders: AllowedFolders) -> None:
        super().__init__(
            "kernwright", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING",
            website_url="https://github.com/kernwright/kernwright",
            resource_security=ResourceSecurity(exempt_params={"ledger"}),  # AllowedFolders checks ledgers
        )  # fmt: skip
        self.folders = folders
        self.parameters: dict[str, list[str]] = {}
        self.tasks = TaskTools(folders)
        self.scores = ScoreCache()
        self._add_tools()
        self._add_resources()

    def _add_tools(self) -> None:
        verdicts, candidates = VerdictTools(self.folders, self.scores), CandidateTools(self.folders)
        traces, campaigns = TraceTools(self.folders), CampaignTools(self.folders)
        judge, wiki = JudgeTools(self.folders, self.tasks), WikiTools()
        read = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
        write = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)
        reading: tuple[Callable[..., Any], ...] = (
            self.tasks.tasks_list, self.tasks.task_show, candidates.candidate_show, verdicts.verdicts_list,
            verdicts.verdict_show, verdicts.scoreboard, verdicts.ledger_verify, traces.hotspots, traces.ncu,
            campaigns.campaign_status, wiki.wiki_search, wiki.wiki_for, wiki.wiki_show,
        )  # fmt: skip
        writing: tuple[Callable[..., Any], ...] = (
            candidates.candidate_write, campaigns.campaign_edit, campaigns.campaign_step,
        )  # fmt: skip
        for tool in reading:
            self._add(tool, read)
        for tool in writing:
            self._add(tool, write)
        self._add(judge.judge, ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False))

    def _add(self, tool: Callable[..., Any], annotations: ToolAnnotations) -> None:
        name = tool.__name__
        self.parameters[name] = [each for each in signature(tool).parameters if each != "context"]
        self.add_tool(tool, name=name, description=getdoc(tool), annotations=annotations)

    def _add_resources(self) -> None:
        own = Resources(self.folders, self.tasks, VerdictTools(self.folders, self.scores))
        for uri, function, kind in (
            ("kernwright://tasks/{task}", own.task_card, MARKDOWN),
            ("kernwright://verdicts/{run}{?ledger}", own.verdict, JSON),
            ("kernwright://reports/{run}{?ledger}", own.report, HTML),
            ("kernwright://wiki/{page}", WikiTools().page_text, MARKDOWN),
        ):
            self.resource(uri, name=function.__name__, description=getdoc(function), mime_type=kind)(function)

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool. Raises ToolError with the cause and the remedy of any failure."""
        known = self.parameters.get(name)
        if known is None:
            remedy = did_you_mean(name[:100], self.parameters, f"the tools are: {', '.join(self.parameters)}")
            raise ToolError(_text(f"no tool is named {name[:100]!r}", remedy))
        if strange := [each for each in arguments if each not in known]:
            remedy = did_you_mean(strange[0], known, f"its arguments are: {', '.join(known)}")
            raise ToolError(_text(f"{name} takes no argument {strange[0][:100]!r}", remedy))
        with _told(ToolError, f"tool {name}"):
            return await super().call_tool(name, arguments, context)

    async def read_resource(
        self, uri: Any, context: Context[Any, Any] | None = None
    ) -> Iterable[ReadResourceContents] | InputRequiredResult:
        """Read a resource. Raises ResourceError with the cause and the remedy of any failure."""
        with _told(ResourceError, f"resource {str(uri)[:200]}"):
            return await super().read_resource(uri, context)


@contextmanager
def _told(kind: type[ToolError | ResourceError], what: str) -> Any:
    """Turn every error of the SDK's wrappers into one with a cause and a remedy."""
    try:
        yield
    except (ToolError, ResourceError) as error:
        cause: BaseException | None = error.__cause__
        while cause is not None and not isinstance(cause, KernwrightError | ValidationError) and cause.__cause__:
            cause = cause.__cause__
        if isinstance(cause, KernwrightError):
            raise kind(_text(cause.cause, cause.remedy)) from None
        if isinstance(cause, ValidationError):
            raise kind(_problems(what, cause)) from None
        if isinstance(cause, ResourceSecurityError):
            raise kind(_text(f"{cause.param} is not allowed", "use the names that the tools return")) from None
        if cause is None:  # the SDK's own message, such as that of an unknown resource
            raise
        logger.error("%s failed:\n%s", what, "".join(traceback.format_exception(cause)))
        raise kind(
            _text(f"{what} failed: unexpected {type(cause).__name__}", "report it with the server's standard error")
        ) from None


def _problems(what: str, error: ValidationError) -> str:
    """Return the wrong arguments, one per line. Their values are not repeated."""
    found = error.errors(include_url=False, include_input=False)
    lines = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in found[:MOST_PROBLEMS]]
    return _text(f"{what}: wrong arguments: {'; '.join(lines)}", "see the tool's input schema")


def _text(cause: str, remedy: str) -> str:
    """Return the message of an error. Both parts have a limited length: an agent reads them."""
    cause, remedy = (text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..." for text in (cause, remedy))
    return f"{cause}\n  remedy: {remedy}" if remedy else cause


def build_server(roots: Sequence[Path]) -> KernwrightServer:
    """Return a server for some folders."""
    return KernwrightServer(AllowedFolders(roots))
