"""A campaign through the server: its status, an edit of the solution, and a step that judges it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
from running_mcp_server import RunningServer, error_of, files_of, told


def test_a_client_edits_the_solution_of_a_campaign_and_submits_it(
    server: RunningServer, served_repository: Path, served_environment: dict[str, str]
) -> None:
    start = ["campaign", "start", "repeated", "--name", "sums", "--prepare-only"]
    subprocess.run(
        [sys.executable, "-m", "kernwright", *start], cwd=served_repository, env=served_environment, check=True
    )
    there = {"repository": str(served_repository)}

    async def main() -> None:
        async with server.client() as client:
            assert "sums" in error_of(await client.call_tool("campaign_status", {**there, "name": "sum"}))
            begun = told(await client.call_tool("campaign_status", there))
            assert (begun["stage"], begun["total"], begun["op"]) == ("prepared", 0, "sum_of_64")
            assert "candidate.toml" in error_of(await client.call_tool("campaign_edit", {**there, "files": {"a": "b"}}))
            edited = told(await client.call_tool("campaign_edit", {**there, "files": files_of("wrong")}))
            source = Path(edited["solution"], "kernel.py")
            assert source.read_text() == files_of("wrong")["kernel.py"]
            assert "--direction" in error_of(await client.call_tool("campaign_step", {**there, "hypothesis": "-x"}))
            idea = {"hypothesis": "one term less is faster", "direction": "fewer-terms", "predict": 1.05}
            done = told(await client.call_tool("campaign_step", {**there, **idea}))
            (iteration,) = done["iterations"]
            assert iteration["verdict"] == "incorrect" and not iteration["improved"] and not iteration["kept"]
            assert iteration["hypothesis"] == idea["hypothesis"] and iteration["predicted"] == 1.05
            assert source.read_text() != files_of("wrong")["kernel.py"], "an edit that does not help is taken back"
            shown = done["next"][-1]
            verdict = told(await client.call_tool(shown["tool"], shown["arguments"]))
            assert verdict["verdict"] == "incorrect" and verdict["run"]

    anyio.run(main)
