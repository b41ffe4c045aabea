"""An agent that knows only the MCP interface: it finds a task, submits a wrong and then a right candidate, and wins."""

from __future__ import annotations

import json

import anyio
import pytest
from running_mcp_server import RunningServer, error_of, files_of, told

MOST_JUDGEMENTS = 2  # an agent follows the advice to judge again


@pytest.mark.clock
def test_an_agent_goes_from_a_search_to_a_proven_speedup(server: RunningServer) -> None:
    async def agent() -> None:
        async with server.client() as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            found = told(await client.call_tool("tasks_list", {"words": "sums 64"}))
            following = found["next"][0]
            card = told(await client.call_tool(following["tool"], following["arguments"]))
            (op,) = card["ops"]
            assert op["signature"] == "sum_of_64(x: Tensor) -> Tensor" and card["rows"][0]["id"] == "r64"
            page = (await client.read_resource(f"kernwright://tasks/{card['name']}")).contents[0].text
            assert op["signature"] in page and card["digest"] in page

            pages = told(await client.call_tool("wiki_search", {"words": "accuracy of a sum in float32"}))
            following = pages["next"][0]
            shown = told(await client.call_tool(following["tool"], following["arguments"]))
            assert shown["text"] and shown["name"] == pages["pages"][0]["name"]
            page = (await client.read_resource(f"kernwright://wiki/{shown['name']}")).contents[0].text
            assert page == shown["text"]
            fitting = told(await client.call_tool("wiki_for", {"bottleneck": "issue-bound", "arch": "sm_90"}))
            assert all(each["reasons"] for each in fitting["pages"])
            assert "wiki" in error_of(await client.call_tool("wiki_show", {"page": "no-such-page"}))

            wrong = told(await client.call_tool("candidate_write", {"name": "sum", "files": files_of("wrong")}))
            quick = wrong["next"][0]
            refused = told(await client.call_tool(quick["tool"], quick["arguments"]))
            assert refused["verdict"] == "incorrect" and refused["rows"][0]["reasons"]
            assert refused["next"][0]["tool"] == "candidate_write"
            assert refused["advice"] and refused["failing_case"]["sizes"] and refused["seed"].isdecimal()
            assert refused["next"][1]["arguments"]["seed"] == refused["seed"], "the same inputs again"

            right = told(await client.call_tool("candidate_write", {"name": "sum", "files": files_of("right")}))
            assert right["digest"] != wrong["digest"]
            heard: list[str | None] = []

            async def hear(progress: float, total: float | None, message: str | None) -> None:
                heard.append(message)

            asked = {name: value for name, value in right["next"][0]["arguments"].items() if name != "quick"}
            verdict = told(await client.call_tool("judge", asked, progress_callback=hear))
            judged = 1
            # A verdict is undecided if other programs took the processors.
            while verdict["verdict"] == "inconclusive" and judged < MOST_JUDGEMENTS:
                again = verdict["next"][0]
                assert again["arguments"] == asked | {"baseline": "eager", "device": "cpu"}
                verdict = told(await client.call_tool(again["tool"], again["arguments"], progress_callback=hear))
                judged += 1
            assert verdict["verdict"] == "faster" and verdict["evidence"], verdict
            assert any("timing" in str(message) for message in heard)

            best = told(await client.call_tool("scoreboard", {"task": card["name"]}))["verdicts"]
            assert [each["run"] for each in best] == [verdict["run"]]
            listed = told(await client.call_tool("verdicts_list", {"candidate": "sum", "limit": 1}))
            assert listed["verdicts"][0]["run"] == verdict["run"]
            assert listed["total"] == 1 + judged and listed["next_offset"] == 1
            shown = told(await client.call_tool("verdict_show", {"run": verdict["run"][-8:]}))
            assert shown["metrics"] == verdict["metrics"]
            whole = (await client.read_resource(f"kernwright://verdicts/{verdict['run']}")).contents[0].text
            assert json.loads(whole)["candidate_digest"] == right["digest"]
            html = (await client.read_resource(f"kernwright://reports/{verdict['run']}")).contents[0]
            assert html.mime_type == "text/html" and "sum_of_64" in html.text
            assert told(await client.call_tool("ledger_verify", {}))["sound"]
            for answer in (found, card, wrong, refused, right, verdict, listed, shown):
                for call in answer["next"]:
                    assert set(call["arguments"]) <= set(tools[call["tool"]].input_schema["properties"]), call
            assert "offset" in error_of(await client.call_tool("verdicts_list", {"offset": 2000}))

    anyio.run(agent)
