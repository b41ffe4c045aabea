"""Agents that change what they must not change: each is refused by name, and the change is undone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernwright.campaign.agents.agent import Assignment
from kernwright.campaign.agents.guard import places
from kernwright.campaign.agents.guard.file_states import States, changes_between, read_states
from kernwright.campaign.agents.guard.guard import Guard
from kernwright.campaign.agents.program_agent import ProgramAgent
from kernwright.campaign.campaign import Campaign
from kernwright.ledger.ledger import Ledger
from kernwright.ledger.verify import verify

Programs = Callable[..., ProgramAgent]
LEDGER = """
sys.path.insert(0, KERNWRIGHT)
sys.path += PATHS
from kernwright.ledger.ledger import Ledger
"""
FORGED_VERDICT = (
    LEDGER
    + """
with Ledger(LEDGER).open_run({"tool": "test"}) as run:
    run.append("verdict", {"candidate": "quick", "verdict": "faster"})
"""
)
ATTACKS = {
    "tolerance": (
        "p = Path(TASK, 'task.toml')\np.write_text(p.read_text().replace('atol = ', 'atol = 1'))",
        "the task: doubling/task.toml (tolerance)",
    ),
    "rows": ("Path(TASK, 'workloads.jsonl').unlink()", "the task: doubling/workloads.jsonl was removed"),
    "adapters": ("Path(TASK, 'baselines.py').write_text('slow')", "the task: doubling/baselines.py was added"),
    "task as a link": (
        "os.rename(TASK, OUTSIDE / 'moved')\nos.symlink(OUTSIDE / 'moved', TASK)",
        "doubling became a link",
    ),
    "judge": (
        "(PACKAGE / 'judge' / 'contracts.py').write_text('LIMIT = 15\\n')",
        "Kernwright's own files (judge, gate, tolerances): package/judge/contracts.py",
    ),
    "permissions": ("os.chmod(PACKAGE / 'judge' / 'contracts.py', 0)", "package/judge/contracts.py"),
    "settings": ("(CAMPAIGN / 'settings.json').write_text('{}')", "the campaign's settings: quick/settings.json"),
    "worktree": (
        "(WORKTREE / 'other.txt').write_text('mine')\n(WORKTREE / 'new').mkdir()",
        "the worktree: worktree/other.txt",
    ),
    "link of the worktree": ("(WORKTREE / '.git').write_text('gitdir: /tmp')", "the repository: worktree/.git"),
    "hook": (
        "p = REPOSITORY / '.git' / 'hooks' / 'pre-commit'\np.write_text('#!/bin/sh\\n')\np.chmod(0o755)",
        "the repository: hooks/pre-commit was added",
    ),
    "filter": (
        "with open(REPOSITORY / '.git' / 'config', 'a') as f: f.write('[filter \"a\"]\\n\\tclean = false\\n')",
        "the repository: .git/config",
    ),
    "reference": (
        "git = ['git', '-C', WORKTREE, '-c', 'user.name=A', '-c', 'user.email=a@b', 'commit', '-q', '--allow-empty']\n"
        "subprocess.run([*git, '-m', 'Forged'], check=True)",
        "the repository: ",
    ),
    "record": (
        "p = next((LEDGER / 'runs').iterdir())\np.write_bytes(p.read_bytes().replace(b'\"same\"', b'\"fast\"'))",
        "the ledger: records of runs/",
    ),
    "heads": ("(LEDGER / 'heads.jsonl').unlink()", "the ledger: heads.jsonl was removed"),
    "verdict": (FORGED_VERDICT, "the ledger: a verdict of this campaign's candidate was forged in run "),
    "iteration": (
        FORGED_VERDICT.replace('"verdict", {', '"campaign_ended", {"campaign": "quick", "reason": "", '),
        "the ledger: a record campaign_ended of this campaign was forged in run ",
    ),
    "settings of agents": (
        "p = REPOSITORY / '.kernwright' / 'agents.toml'\np.write_text('[command]\\ncommand = []\\nnetwork = \"all\"')",
        "the settings of agents: .kernwright/agents.toml was added",
    ),
    "settings of git": (
        "(HOME / '.gitconfig').write_text('[core]\\n\\thooksPath = /tmp\\n')",
        "the settings of git: home/.gitconfig was added",
    ),
}
INSIDE = {
    "link": (
        "import shutil\nshutil.rmtree(SOLUTION)\nos.symlink(OUTSIDE, SOLUTION)",
        "solution/ is no folder any more: a link to ",
    ),
    "no solution": ("import shutil\nshutil.rmtree(SOLUTION)", "solution/ is no folder any more"),
    "deep folders": (
        "os.chdir(SOLUTION)\nfor _ in range(1500):\n    os.mkdir('d' * 9)\n    os.chdir('d' * 9)",
        "is a folder inside 32 others",
    ),
    "link in solution": ("os.symlink('/etc/passwd', SOLUTION / 'x')", "quick/solution/x is a link to /etc/passwd"),
    "hard link": ("os.link(SOLUTION / 'kernel.py', SOLUTION / 'x')", "is a hard link to another file"),
    "attributes": ("(SOLUTION / '.gitattributes').write_text('* filter=a')", ".gitattributes is a file of git"),
    "repository": (
        "subprocess.run(['git', 'init', '-q', SOLUTION], check=True)",
        "quick/solution/.git is a file of git",
    ),
    "special file": ("os.mkfifo(SOLUTION / 'pipe')", "quick/solution/pipe is a special file"),
}


def with_ledger(source: str) -> str:
    import pydantic

    package, libraries = Path(places.__file__).parents[4], Path(pydantic.__file__).parents[1]
    return source.replace("KERNWRIGHT", repr(str(package))).replace("PATHS", repr([str(libraries)]))


def protected(campaign: Campaign) -> States:
    """Return the state of everything outside the agent's folder, except what git and Python write by themselves."""
    outside = campaign.folder.parents[3]
    names = {"index", "logs", "objects", "agent.py", "__pycache__", "COMMIT_EDITMSG", ".lock", "ORIG_HEAD"}
    return read_states(outside, keep=True, skip=lambda path: path == campaign.agent_folder or path.name in names)


@pytest.mark.parametrize("attack", [*ATTACKS, *INSIDE])
def test_without_walls_each_attack_is_refused_by_name_and_undone(
    program: Programs, assignment: Assignment, quiet: Any, attack: str
) -> None:
    campaign = assignment.campaign
    source, name = (ATTACKS | INSIDE)[attack]
    before = protected(campaign)
    result = program(with_ledger(source), walls=False).edit(assignment, quiet)
    assert result.ending == "tampered", (result.reason, result.transcript.decode())
    assert name in result.reason
    assert b"WITHOUT WALLS" in result.transcript
    left = [change.path.name for change in changes_between(before, protected(campaign))]
    assert left == (["moved"] if attack == "task as a link" else [])
    assert campaign.solution.is_dir() and not campaign.solution.is_symlink()
    assert verify(campaign.settings.ledger) == []


def test_behind_walls_no_attack_changes_anything(program: Programs, assignment: Assignment, quiet: Any) -> None:
    campaign = assignment.campaign
    before = protected(campaign)
    barred = {name: attack for name, attack in ATTACKS.items() if name != "permissions"}  # landlock does not bar chmod
    attempts = "\n".join(
        f"try:\n    exec({with_ledger(source)!r})\nexcept BaseException as error:\n    print('refused: {name}', error)"
        for name, (source, _) in barred.items()
    )
    result = program(
        attempts,
        """
        import signal, socket
        try:
            os.kill(os.getppid(), signal.SIGTERM)
        except OSError as error:
            print("refused: signal", error)
        try:
            socket.socket()
        except OSError as error:
            print("refused: socket", error)
        """,
    ).edit(assignment, quiet)
    shown = result.transcript.decode()
    refused = [name for name in (*barred, "signal", "socket") if f"refused: {name} " in shown]
    assert refused == [*barred, "signal", "socket"], shown
    assert result.ending == "no_change", result.reason
    assert changes_between(before, protected(campaign)) == []


def test_work_of_other_programs_is_no_tampering(campaign: Campaign) -> None:
    guard = Guard(campaign, with_walls=True)
    with Ledger(campaign.settings.ledger).open_run({"tool": "test"}) as run:
        run.append("verdict", {"candidate": "another", "verdict": "faster"})
    subprocess.run(["git", "-C", str(campaign.settings.repository), "branch", "mine"], check=True)
    (campaign.settings.repository / "other.txt").write_text("the user works on")
    os.utime(Path(campaign.settings.task, "task.toml"))
    (campaign.solution / "new.py").write_text("")
    assert guard.undo() == []
    assert len(Ledger(campaign.settings.ledger).runs()) == 2


def test_compiled_python_of_an_agent_is_dropped(campaign: Campaign) -> None:
    cache = places.PACKAGE / "judge" / "__pycache__"
    cache.mkdir()
    (cache / "old.pyc").write_bytes(b"old")
    guard = Guard(campaign, with_walls=False)
    (cache / "contracts.cpython-312.pyc").write_bytes(b"poison")
    assert guard.undo() == []
    assert [path.name for path in cache.iterdir()] == ["old.pyc"]


def test_a_forged_run_is_named_even_if_others_wrote_meanwhile(campaign: Campaign) -> None:
    guard = Guard(campaign, with_walls=False)
    ledger = Ledger(campaign.settings.ledger)
    for name in ("quick", "another"):
        with ledger.open_run({"tool": "test"}) as run:
            run.append("verdict", {"candidate": name, "verdict": "faster"})
    forged, restored = guard.undo()
    assert "a verdict of this campaign's candidate was forged in run" in forged
    assert restored.startswith("the ledger: could not be restored: the heads, because another process wrote")
    assert len(ledger.runs()) == 3, "the record of the other program is not lost"
