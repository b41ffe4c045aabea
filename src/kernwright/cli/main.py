"""kernwright: the root of the command line."""

from __future__ import annotations

import os
import sys
from typing import Any, cast

import typer
from typer.core import TyperGroup

from kernwright.cli.lazy_commands import CommandEntry, LazyCommands
from kernwright.cli.output import say
from kernwright.core.errors import KernwrightError
from kernwright.core.version import __version__

# The judge's own threads must not spin on a worker's processor after they have checked a block. OpenMP reads this once,
# when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

INTERRUPTED = 130  # exit status after Ctrl-C, as shells report it

JUDGE = "Judge"
TASKS = "Tasks"
EVIDENCE = "Evidence"
MODELS = "Models"
OPS = "Ops"
CAMPAIGNS = "Campaigns"
AGENTS = "Agents"
MACHINES = "Machines"
KNOWLEDGE = "Knowledge"


# In the order of `kernwright --help`. An entry names the module below `kernwright.cli` and the function or group in it.
COMMANDS = {
    "compare": CommandEntry("models.compare:compare", MODELS),
    "denoise": CommandEntry("models.denoise:denoise", MODELS),
    "doctor": CommandEntry("models.doctor:doctor", MODELS),
    "hotspots": CommandEntry("models.hotspots:hotspots", MODELS),
    "ncu": CommandEntry("models.ncu:ncu", MODELS, splits_at_dashes=True),
    "profile": CommandEntry("models.profile:profile", MODELS),
    "run": CommandEntry("models.run:run", MODELS, runs_a_program=True),
    "judge": CommandEntry("judge.judge:judge", JUDGE),
    "sweep": CommandEntry("judge.sweep:sweep", JUDGE),
    "sanitize": CommandEntry("judge.sanitize:sanitize", JUDGE),
    "exploits": CommandEntry("judge.exploits:exploits", JUDGE),
    "campaign": CommandEntry("campaign.group:app", CAMPAIGNS),
    "candidate": CommandEntry("tasks.candidate:app", TASKS),
    "capture": CommandEntry("tasks.capture:capture", TASKS, runs_a_program=True),
    "task": CommandEntry("tasks.task:app", TASKS),
    "report": CommandEntry("records.report:report", EVIDENCE),
    "results": CommandEntry("records.results:results", EVIDENCE),
    "ledger": CommandEntry("records.ledger:app", EVIDENCE),
    "explain": CommandEntry("ops.explain:explain", OPS),
    "build": CommandEntry("ops.build:build", OPS),
    "tune": CommandEntry("ops.tune:tune", OPS),
    "op": CommandEntry("ops.op:app", OPS),
    "mcp": CommandEntry("agents.mcp:mcp", AGENTS),
    "skills": CommandEntry("agents.skills:app", AGENTS),
    "wiki": CommandEntry("wiki.wiki:app", KNOWLEDGE),
    "bundle": CommandEntry("packages.bundle:bundle", MACHINES),
    "baseline": CommandEntry("packages.baseline:app", MACHINES),
}


class RootGroup(TyperGroup):
    """The root command. Ctrl-C ends every command with one line and status 130."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = cast(Any, LazyCommands(COMMANDS))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            say("kernwright: interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    cls=RootGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Judge GPU and CPU kernels against pinned baselines, and keep the evidence.",
    epilog="Exit status: 0 success; 1 negative result (see the command's --help); 2 wrong usage or the command could "
    "not run; 130 interrupted. NO_COLOR=1 turns colours off.",
)


@app.callback(invoke_without_command=True)
def root(version: bool = typer.Option(False, "--version", help="show the version and exit")) -> None:
    if version:
        say(__version__)
        raise typer.Exit


def place_of(error: KernwrightError) -> str:
    """Return the place in the documentation that has an error: the section of the package that raised it."""
    package, step = "cli", error.__traceback__
    while step is not None:
        name = str(step.tb_frame.f_globals.get("__name__", "")).split(".")
        package = name[1] if name[0] == "kernwright" and len(name) > 1 else package
        step = step.tb_next
    return f"docs/troubleshooting.md#{package}"


def main() -> None:
    """Run the command line. Errors become one message on standard error and exit status 2."""
    try:
        app(prog_name="kernwright")
    except KernwrightError as error:
        say(f"kernwright: {error}\n  see: {place_of(error)}", err=True)
        sys.exit(2)
    except Exception as error:
        if os.environ.get("KERNWRIGHT_TRACE"):
            raise
        say(
            f"kernwright: unexpected error: {type(error).__name__}: {error}\n"
            "  remedy: report it with the output of the same command under KERNWRIGHT_TRACE=1",
            err=True,
        )
        sys.exit(2)


if __name__ == "__main__":
    main()
