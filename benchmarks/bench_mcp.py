"""Time the read-only tools and resources of `kernwright mcp` with a client of the SDK.

    python benchmarks/bench_mcp.py

The bar is a median of 100 ms for each call after the start. The server runs over standard input and output, on this
checkout and on the records in evidence/. The table also has the first call of each kind, which may read files. The exit
status is 1 if a median is above its bar.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters

ROOT = Path(__file__).resolve().parents[1]
LEDGER = "evidence/h200"
RUNS = 30
BAR_MS = 100.0

Call = Callable[[], Awaitable[Any]]


def calls_of(client: Client, run: str) -> dict[str, Call]:
    """Return the calls that are timed, by the text that names them in the table."""

    def tool(name: str, **arguments: Any) -> Call:
        async def call() -> None:
            result = await client.call_tool(name, arguments)
            assert not result.is_error, result.content

        return call

    def resource(uri: str) -> Call:
        async def call() -> None:
            await client.read_resource(uri)

        return call

    wiki = {
        "wiki_search": tool("wiki_search", words="rows of odd width"),
        "wiki_for": tool("wiki_for", bottleneck="issue", arch="sm_90"),
    }
    return {
        "tasks_list": tool("tasks_list"),
        "task_show, 39 rows": tool("task_show", task="norm_scale_shift", limit=100),
        "candidate_show": tool("candidate_show", folder="examples/candidates/fused_cpp"),
        "verdicts_list, 277 verdicts": tool("verdicts_list", ledger=LEDGER),
        "scoreboard": tool("scoreboard", ledger=LEDGER),
        "verdict_show": tool("verdict_show", run=run, ledger=LEDGER),
        "resource: task card": resource("kernwright://tasks/norm_scale_shift"),
        "resource: verdict": resource(f"kernwright://verdicts/{run}?ledger={LEDGER.replace('/', '%2F')}"),
        "resource: report": resource(f"kernwright://reports/{run}?ledger={LEDGER.replace('/', '%2F')}"),
        **(wiki if importlib.util.find_spec("kernwright.wiki") else {}),
    }


async def measure() -> int:
    """Print the table and return the exit status."""
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "kernwright", "mcp", "--root", str(ROOT)], cwd=ROOT
    )
    begin = time.perf_counter()
    slow = False
    async with Client(parameters) as client:
        print(f"start of the server until the client is connected: {time.perf_counter() - begin:.2f} s\n")
        listed = await client.call_tool("verdicts_list", {"ledger": LEDGER, "limit": 1})
        run = listed.structured_content["verdicts"][0]["run"]
        print("| call | first ms | median ms | bar ms |\n|---|---:|---:|---:|")
        for name, call in calls_of(client, run).items():
            times = []
            for _ in range(RUNS + 1):
                start = time.perf_counter()
                await call()
                times.append(1e3 * (time.perf_counter() - start))
            median = statistics.median(times[1:])
            slow |= median > BAR_MS
            print(f"| {name} | {times[0]:.1f} | {median:.1f} | {BAR_MS:.0f} |")
    return int(slow)


if __name__ == "__main__":
    sys.exit(anyio.run(measure))
