"""Requests that are wrong, too large or not allowed: each gets an error with a remedy, and the server goes on."""

from __future__ import annotations

import io
import json
import os
import shutil
import urllib.error
import urllib.request
from pathlib import Path

import anyio
import pytest
from mcp import MCPError
from running_mcp_server import REPEATED_OPS, SOURCES, TESTS, TOKEN, RunningServer, error_of, files_of, told

from kernwright.core.errors import KernwrightError
from kernwright.mcp.folders import AllowedFolders, NotAllowed
from kernwright.mcp.stdio import BoundedLines
from kernwright.mcp.tools.candidates import replace_candidate

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


def status_of(url: str, body: bytes, **headers: str) -> int:
    """Return the status of the answer to a raw request."""
    given = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    given |= {"Accept": "application/json, text/event-stream"} | headers
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, given), timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_http_takes_only_requests_of_this_machine_with_the_token(server: RunningServer) -> None:
    start = json.dumps(
        PING | {"method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}
    ).encode()  # fmt: skip
    assert status_of(server.url, start) == 200
    assert status_of(server.url, start, Authorization="Bearer other") == 401
    assert status_of(server.url, start, Authorization="") == 401
    assert status_of(server.url, start, Host="attacker.example") == 421, "a name that leads here by DNS rebinding"
    assert status_of(server.url, start, Origin="http://attacker.example") == 403
    assert status_of(server.url, b"{}", **{"Content-Length": str(9 << 20)}) == 413, "refused before it is read"
    for malformed in (b"{", b"[]", b'{"jsonrpc": "2.0"}', b"\xff\xfe", b"[" * 100_000):
        assert status_of(server.url, malformed) == 400
    assert status_of(server.url, start) == 200


def test_wrong_calls_get_errors_with_a_remedy(server: RunningServer, served_root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "ledger" / "runs").mkdir(parents=True)
    (outside / "trace.json").write_text("{}")
    (served_root / "link").symlink_to(outside)
    (served_root / "linked" / "runs").mkdir(parents=True)
    (served_root / "linked" / "runs" / "run.jsonl").symlink_to(outside / "trace.json")
    os.mkfifo(served_root / "fifo")
    marker = tmp_path / "imported"
    for name in ("piped", "linked", "looped"):
        folder = served_root / "candidates" / name
        folder.mkdir(parents=True)
        (folder / "kernel.py").write_text(SOURCES["right"])
    os.mkfifo(served_root / "candidates" / "piped" / "candidate.toml")
    (outside / "secret.toml").write_text('op = "of-another-user"')
    (served_root / "candidates" / "linked" / "candidate.toml").symlink_to(outside / "secret.toml")
    (served_root / "candidates" / "looped" / "candidate.toml").symlink_to("candidate.toml")
    for name in ("piped", "linked", "running"):
        shutil.copytree(served_root / "tasks" / "repeated", served_root / "more" / name)
    (served_root / "more" / "piped" / "workloads.jsonl").unlink()
    os.mkfifo(served_root / "more" / "piped" / "workloads.jsonl")
    (served_root / "more" / "linked" / "task.toml").unlink()
    (served_root / "more" / "linked" / "task.toml").symlink_to(outside / "secret.toml")
    (served_root / "more" / "running" / "definitions.py").write_text(f"open({str(marker)!r}, 'w')\n" + REPEATED_OPS)
    (served_root / "piped" / "runs").mkdir(parents=True)
    os.mkfifo(served_root / "piped" / "runs" / "20261118T194507020373Z-32dbf740.jsonl")
    (served_root / "candidates" / "kept").mkdir(parents=True, exist_ok=True)
    right = files_of("right")
    calls = [
        ("task_show", {"task": "repeatd"}, "repeated"),
        ("task_show", {"task": "../tasks"}, "outside"),
        ("task_show", {"tusk": "repeated"}, "task"),
        ("task_show", {"task": ["repeated"]}, "task"),
        ("task_show", {"task": "repeated", "limit": 10**9}, "limit"),
        ("task_sho", {}, "task_show"),
        ("hotspots", {"trace": "/etc/passwd"}, "outside"),
        ("hotspots", {"trace": "link/trace.json"}, "outside"),
        ("hotspots", {"trace": "fifo"}, "plain file"),
        ("hotspots", {"trace": "nul\0"}, "path"),
        ("hotspots", {"trace": "tasks/repeated/task.toml"}, "JSON"),
        ("ncu", {"report": "trace.json.gz"}, "trace.json.gz"),
        ("verdict_show", {"run": "2026", "ledger": "link/ledger"}, "outside"),
        ("verdicts_list", {"ledger": "linked"}, "link"),
        ("verdicts_list", {"ledger": "missing"}, "missing"),
        ("judge", {"task": "repeated", "candidate": "link"}, "outside"),
        ("judge", {"task": "repeated", "candidate": "tasks/repeated"}, "candidate.toml"),
        ("judge", {"task": "repeated", "candidate": "candidates/shown", "device": "tpu"}, "device"),
        ("judge", {"task": "repeated", "candidate": "candidates/shown", "ledger": "/tmp/l"}, "outside"),
        ("candidate_write", {"name": "../up", "files": right}, "name"),
        ("candidate_write", {"name": "x", "files": right | {"../../up.py": ""}}, "name"),
        ("candidate_write", {"name": "x", "files": right | {"task.toml": ""}}, "task.toml"),
        ("candidate_write", {"name": "x", "files": {"kernel.py": ""}}, "candidate.toml"),
        ("candidate_write", {"name": "x", "files": right | {"a": "x" * (2 << 20)}}, "large"),
        ("candidate_write", {"name": "x", "files": {str(n): "" for n in range(100)}}, "files"),
        ("candidate_write", {"name": "x", "files": right, "root": "tasks"}, "tasks"),
        ("candidate_write", {"name": "kept", "files": right}, "candidate"),
        ("candidate_write", {"name": "kernwright", "files": right}, "kernwright"),
        ("candidate_show", {"folder": "candidates/shown", "file": "../kept"}, "kernel.py"),
        ("candidate_show", {"folder": "candidates/piped"}, "pipe"),
        ("candidate_show", {"folder": "candidates/linked"}, "link"),
        ("candidate_show", {"folder": "candidates/looped"}, "link"),
        ("candidate_show", {"folder": "x" * 300}, "folder"),
        ("candidate_show", {"folder": "x/" * 2000}, "folder"),
        ("candidate_write", {"name": "x", "files": right | {"a": "", "a/b": ""}}, "a/b"),
        ("judge", {"task": "repeated", "candidate": "candidates/piped"}, "plain file"),
        ("judge", {"task": "more/piped", "candidate": "candidates/shown"}, "pipe"),
        ("judge", {"task": "repeated", "candidate": "candidates/shown", "metric": "x" * 10**4}, "metric"),
        ("judge", {"task": "repeated", "candidate": "candidates/shown", "rounds": 10**30}, "rounds"),
        ("judge", {"task": "repeated", "candidate": "candidates/shown", "wait_s": "nan"}, "wait_s"),
        ("judge", {"task": "repeated", "candidate": "candidates/shown", "seed": 2**62}, "seed"),
        ("task_show", {"task": "more/piped"}, "pipe"),
        ("task_show", {"task": "more/linked"}, "link"),
        ("task_show", {"task": "more/running"}, "definitions"),
        ("verdicts_list", {"ledger": "piped"}, "pipe"),
        ("verdicts_list", {"ledger": "fifo"}, "fifo"),
        ("campaign_status", {"name": "none"}, "campaign start"),
        ("campaign_step", {"repository": "link"}, "outside"),
    ]  # fmt: skip

    async def main() -> None:
        async with server.client() as client:
            told(await client.call_tool("candidate_write", {"name": "shown", "files": right}))
            for tool, arguments, word in calls:
                with anyio.fail_after(60):  # reading a pipe would never end
                    said = error_of(await client.call_tool(tool, arguments))
                assert word in said and "of-another-user" not in said and len(said) < 5000, (tool, arguments)
            with pytest.raises(MCPError, match="repeated"):
                await client.read_resource("kernwright://tasks/repeatd")
            with pytest.raises(MCPError, match="outside"):
                await client.read_resource("kernwright://verdicts/2026?ledger=/etc")
            shown = told(await client.call_tool("candidate_show", {"folder": "candidates/shown", "file": "kernel.py"}))
            assert shown["text"] == right["kernel.py"], "a refused candidate changes nothing"

    anyio.run(main)
    assert not (served_root / "candidates" / "x").exists() and not (outside / "up.py").exists()
    assert list((served_root / "candidates").glob(".part-*")) == []
    assert not marker.exists(), "no code of a task runs in the server"


def test_recordings_are_answered_in_pages(server: RunningServer, served_root: Path) -> None:
    report = TESTS / "diagnose" / "ncu" / "exports" / "raw.csv"
    (served_root / "raw.csv").write_bytes(report.read_bytes())

    async def main() -> None:
        async with server.client() as client:
            first = told(await client.call_tool("hotspots", {"trace": "trace.json.gz", "limit": 2}))
            rest = told(await client.call_tool("hotspots", {"trace": "trace.json.gz", "offset": first["next_offset"]}))
            assert [each["rank"] for each in first["hotspots"] + rest["hotspots"][:1]] == [1, 2, 3]
            assert first["gpu_us"] > sum(each["us"] for each in first["hotspots"]) > 0
            kernels = told(await client.call_tool("ncu", {"report": "raw.csv"}))
            assert kernels["kernels"] and {each["main"] for each in kernels["kernels"]} != {None}

    anyio.run(main)


def test_lines_that_are_too_long_are_not_read_and_their_ids_are_kept() -> None:
    long = "x" * 9000
    lines = [
        '{"id": 1}', f'{{"jsonrpc": "2.0", "id": 7, "method": "m", "params": {{"id": 8, "a": "{long}"}}}}', '{"id": 2}',
        f'{{"method": "m", "params": {{"a": "{long}", "id": 8}}, "id": "nine"}}',
        f'{{"params": {{"id": 3, "a": "{long}',
    ]  # fmt: skip
    stream = BoundedLines(io.BytesIO("\n".join(lines).encode()), most=100)
    read = [stream.readline() for _ in range(6)]
    assert [line.strip() for line in read if line.startswith("{")] == [lines[0], lines[2]] and read[5] == ""
    assert stream.refused == [7, "nine", None]


def test_a_folder_that_becomes_a_link_is_not_written_to(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "candidates").mkdir(parents=True)
    outside.mkdir()
    folders = AllowedFolders([root])
    replace_candidate(folders, root / "candidates", "mine", files_of("right"))
    with folders.pinned(root / "candidates") as pinned:
        (root / "candidates").rename(root / "moved")
        (root / "candidates").symlink_to(outside)
        (pinned / "new").touch()
    assert (root / "moved" / "new").exists() and (root / "moved" / "mine" / "kernel.py").exists()
    (root / "inside").symlink_to(outside)
    for wrong in (root / "candidates", root / "inside" / ".", outside, root / "none"):
        with pytest.raises(NotAllowed):
            replace_candidate(folders, wrong, "mine", files_of("right"))
    assert list(outside.iterdir()) == []


def test_paths_are_compared_after_their_links_are_followed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (tmp_path / "rooted").mkdir()
    (root / "inside").symlink_to(root / "sub")
    (root / "out").symlink_to(tmp_path)
    folders = AllowedFolders([root])
    assert folders.resolve("inside/new.json") == root / "sub" / "new.json"
    assert folders.resolve("out/root/sub") == root / "sub"
    for wrong in ("out", "out/rooted", "..", "/", "", "a\0b", str(tmp_path / "rooted"), "sub/../../rooted", "x" * 9999):
        with pytest.raises(NotAllowed):
            folders.resolve(wrong)
    with pytest.raises(KernwrightError, match="bytes"):
        (root / "large").write_bytes(b"123")
        folders.file("large", most_bytes=2)
