"""A program that edits the candidate: what it is told, what is kept of it, its limits, and its end."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernwright.campaign.agents.agent import Assignment
from kernwright.campaign.agents.lookup import find_agent
from kernwright.campaign.agents.program_agent import ProgramAgent
from kernwright.campaign.agents.transcript import MOST_HEAD, MOST_TAIL, Transcript
from kernwright.core.errors import EnvironmentProblem, KernwrightError

Programs = Callable[..., ProgramAgent]
EDIT = "(SOLUTION / 'kernel.py').write_text('def run(x):\\n    return 2 * x\\n')\n"


def test_a_program_edits_the_candidate_and_states_its_idea(
    program: Programs, assignment: Assignment, quiet: Any
) -> None:
    agent = program(
        EDIT,
        """
        own = {name: os.environ[name] for name in ("KERNWRIGHT_CAMPAIGN", "KERNWRIGHT_ITERATION", "KERNWRIGHT_AVOID")}
        print(own, Path.cwd() == FOLDER, Path(os.environ["TMPDIR"]).is_dir(), os.getsid(0) != SID, flush=True)
        print("to stderr", file=sys.stderr)
        Path(os.environ["TMPDIR"], "x").write_text("scratch is writable")
        Path(os.environ.get("KERNWRIGHT_LOCKS", "/tmp"), "kernwright-cpu.lock").open("r+").close()  # as the judge does
        Path("prompt.md").write_text("another card")
        idea = {"hypothesis": "one multiplication", "direction": "Fewer Reads!", "predicted_ratio": 1.05}
        Path("idea.json").write_text(json.dumps(idea | {"note": "done", "cost_usd": 0.25, "more": 1}))
        """.replace("SID", str(os.getsid(0))),
    )
    result = agent.edit(assignment, quiet)
    assert result.ending == "finished", (result.reason, result.transcript)
    assert result.idea is not None
    assert (result.idea.hypothesis, result.idea.direction) == ("one multiplication", "fewer-reads")
    assert (result.idea.predicted_ratio, result.cost_usd) == (1.05, 0.25)
    assert result.note == "done; generated files were restored: prompt.md"
    shown = result.transcript.decode()
    assert "'KERNWRIGHT_ITERATION': '3', 'KERNWRIGHT_AVOID': 'unroll,stages'} True True True" in shown
    assert "to stderr" in shown and "behind walls" in shown
    campaign = assignment.campaign
    assert (campaign.solution / "kernel.py").read_text() == "def run(x):\n    return 2 * x\n"
    assert (campaign.agent_folder / "prompt.md").read_text() == "the card\n"
    assert not (campaign.agent_folder / "idea.json").exists()


@pytest.mark.parametrize(
    ("source", "ending", "said"),
    [
        ("", "no_change", "the agent wrote no idea.json"),
        (EDIT + "Path('idea.json').write_text('{')", "finished", "idea.json cannot be read"),
        (EDIT + "os.mkfifo('idea.json')", "tampered", "idea.json is a special file"),
        (EDIT + "Path('idea.json').write_text('{\"hypothesis\": 1}')", "finished", "idea.json: hypothesis: "),
        ("print('no key'); sys.exit(3)", "failed", "it ended with status 3: no key"),
        ("os.kill(os.getpid(), 11)", "failed", "it ended with signal 11"),
        (EDIT + "Path('idea.json').write_text(json.dumps({'hypothesis': 'h', 'direction': 'd', 'cost_usd': 3}))",
         "over_cost", "the agent cost 3.00 USD, the limit is 2.00"),
    ],
)  # fmt: skip
def test_an_iteration_counts_whatever_the_program_does(
    program: Programs, assignment: Assignment, quiet: Any, source: str, ending: str, said: str
) -> None:
    result = program(source).edit(replace(assignment, cost_limit_usd=2.0), quiet)
    assert result.ending == ending, result
    assert said in f"{result.reason} {result.note}"
    assert result.idea is not None
    assert result.idea.hypothesis == ("h" if ending == "over_cost" else "(none given)")


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


# Daemons: in a session of their own, deaf to SIGTERM, and with a parent that has ended.
DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        Path("daemon.pid").write_text(str(os.getpid()))
        time.sleep(300)
    os._exit(0)
while not Path("daemon.pid").exists() or not Path("daemon.pid").read_text():
    time.sleep(0.01)
"""


def test_no_process_survives_an_agent_that_ends(program: Programs, assignment: Assignment, quiet: Any) -> None:
    result = program(EDIT + DAEMON).edit(assignment, quiet)
    assert result.ending == "finished"
    assert not is_running(int((assignment.campaign.agent_folder / "daemon.pid").read_text()))


def test_the_time_limit_ends_an_agent_with_its_daemons(program: Programs, assignment: Assignment, quiet: Any) -> None:
    result = program(DAEMON + "print('working', flush=True)\ntime.sleep(300)").edit(
        replace(assignment, time_limit_s=1.0), quiet
    )
    assert (result.ending, result.reason) == ("timed_out", "the time limit is 1 s")
    assert b"working" in result.transcript
    assert not is_running(int((assignment.campaign.agent_folder / "daemon.pid").read_text()))


def test_a_cost_in_the_output_ends_an_agent(program: Programs, assignment: Assignment, quiet: Any) -> None:
    agent = program("print('{\"total_cost_usd\": 2.5}', flush=True)\ntime.sleep(300)")
    agent = replace(agent, preset=agent.preset.model_copy(update={"cost_pattern": r'total_cost_usd"\s*:\s*([\d.]+)'}))
    result = agent.edit(replace(assignment, cost_limit_usd=2.0), quiet)
    assert (result.ending, result.cost_usd) == ("over_cost", 2.5)


def test_ctrl_c_ends_all_processes_and_passes_on(program: Programs, assignment: Assignment, quiet: Any) -> None:
    pid_file = assignment.campaign.agent_folder / "daemon.pid"

    def interrupt() -> None:
        while not pid_file.exists() or not pid_file.read_text():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        program(DAEMON + "time.sleep(300)").edit(assignment, quiet)
    assert not is_running(int(pid_file.read_text()))


def test_a_module_in_the_agents_folder_is_not_imported_outside_the_walls(
    program: Programs, assignment: Assignment, quiet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = assignment.campaign.agent_folder
    (folder / "ctypes.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(("", ".", os.environ.get("PYTHONPATH", ""))))
    monkeypatch.chdir(folder)
    result = program("print('ran')").edit(assignment, quiet)
    assert result.ending == "no_change" and b"imported" not in result.transcript


def test_a_long_transcript_keeps_its_head_and_its_tail() -> None:
    transcript = Transcript()
    for number in range(40):
        transcript.add(bytes([number]) * (1 << 16))
    kept = transcript.content()
    assert kept.startswith(bytes(1 << 16)) and kept.endswith(bytes([39]) * (1 << 16))
    left_out = 40 * (1 << 16) - MOST_HEAD - MOST_TAIL
    assert f"[... {left_out} bytes left out ...]".encode() in kept
    assert len(kept) < MOST_HEAD + MOST_TAIL + 100


# Finding agents


def test_unknown_and_missing_agents_are_refused_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KernwrightError, match=r"no agent is called 'claud'\n  remedy: did you mean claude\?"):
        find_agent("claud", tmp_path)
    with pytest.raises(EnvironmentProblem, match="the program codex of the agent codex is not on PATH\n  remedy: inst"):
        find_agent("codex", tmp_path)
    with pytest.raises(KernwrightError, match="the agent command has no command line"):
        find_agent("command", tmp_path)
    with pytest.raises(EnvironmentProblem, match="the program nothing of the agent command is not on PATH"):
        find_agent("command", tmp_path, "nothing --at 'all'")


def test_a_users_file_replaces_and_adds_presets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    own = tmp_path / ".kernwright" / "agents.toml"
    own.parent.mkdir()
    own.write_text('[claude]\ncommand = ["true", "{prompt_file}"]\n[mine]\ncommand = ["true"]\nnetwork = "local"\n')
    claude, mine = find_agent("claude", tmp_path), find_agent("mine", tmp_path)
    assert isinstance(claude, ProgramAgent) and isinstance(mine, ProgramAgent)
    assert claude.preset.command_line({"prompt_file": "/p"}, True, True) == ["true", "/p"]
    assert (claude.preset.writes, mine.preset.network) == ((), "local")
    own.write_text("[mine]\ncomand = []\n")
    with pytest.raises(KernwrightError, match="comand"):
        find_agent("mine", tmp_path)


def test_shipped_presets_pass_the_prompt_and_the_cost_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("claude", "codex"):
        path = tmp_path / name
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    values = {"prompt": "do it", "cost_limit": "1.50"}
    claude, codex = find_agent("claude", tmp_path), find_agent("codex", tmp_path)
    assert isinstance(claude, ProgramAgent) and isinstance(codex, ProgramAgent)
    words = claude.preset.command_line(values, True, True)
    assert words[:3] == ["claude", "--print", "do it"] and words[-2:] == ["--max-budget-usd", "1.50"]
    assert "--max-budget-usd" not in claude.preset.command_line(values, True, False)
    assert "danger-full-access" in codex.preset.command_line(values, True, False)
    assert "danger-full-access" not in codex.preset.command_line(values, False, False), "its own walls, without ours"
