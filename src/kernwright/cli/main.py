"""kernwright: the root of the command line."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from kernwright.cli.judge.exploits import exploits
from kernwright.cli.judge.judge import judge
from kernwright.cli.judge.sanitize import sanitize
from kernwright.cli.judge.sweep import sweep
from kernwright.cli.models.compare import compare
from kernwright.cli.models.denoise import denoise
from kernwright.cli.models.doctor import doctor
from kernwright.cli.models.hotspots import hotspots
from kernwright.cli.models.ncu import ncu
from kernwright.cli.models.profile import profile
from kernwright.cli.models.run import SETTINGS as RUN_SETTINGS
from kernwright.cli.models.run import run
from kernwright.cli.ops import op
from kernwright.cli.ops.build import build
from kernwright.cli.ops.explain import explain
from kernwright.cli.ops.tune import tune
from kernwright.cli.output import say
from kernwright.cli.packages import baseline
from kernwright.cli.packages.bundle import bundle
from kernwright.cli.records import ledger
from kernwright.cli.records.report import report
from kernwright.cli.records.results import results
from kernwright.cli.tasks import task
from kernwright.cli.tasks.capture import SETTINGS, capture
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
MACHINES = "Machines"


class RootGroup(TyperGroup):
    """The root command. Ctrl-C ends every command with one line and status 130."""

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
app.command("denoise", rich_help_panel=MODELS)(denoise)
app.command("compare", rich_help_panel=MODELS)(compare)
app.command("judge", rich_help_panel=JUDGE)(judge)
app.command("sweep", rich_help_panel=JUDGE)(sweep)
app.command("sanitize", rich_help_panel=JUDGE)(sanitize)
app.command("exploits", rich_help_panel=JUDGE)(exploits)
app.add_typer(task.app, name="task", rich_help_panel=TASKS)
app.command("capture", context_settings=SETTINGS, rich_help_panel=TASKS)(capture)
app.add_typer(ledger.app, name="ledger", rich_help_panel=EVIDENCE)
app.command("report", rich_help_panel=EVIDENCE)(report)
app.command("results", rich_help_panel=EVIDENCE)(results)
app.command("doctor", rich_help_panel=MODELS)(doctor)
app.command("hotspots", rich_help_panel=MODELS)(hotspots)
app.command("ncu", rich_help_panel=MODELS)(ncu)
app.command("profile", rich_help_panel=MODELS)(profile)
app.command("run", context_settings=RUN_SETTINGS, rich_help_panel=MODELS)(run)
app.add_typer(op.app, name="op", rich_help_panel=OPS)
app.command("explain", rich_help_panel=OPS)(explain)
app.command("build", rich_help_panel=OPS)(build)
app.command("tune", rich_help_panel=OPS)(tune)
app.add_typer(baseline.app, name="baseline", rich_help_panel=MACHINES)
app.command("bundle", rich_help_panel=MACHINES)(bundle)


@app.callback(invoke_without_command=True)
def root(version: bool = typer.Option(False, "--version", help="show the version and exit")) -> None:
    if version:
        say(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line. Errors become one message on standard error and exit status 2."""
    try:
        app(prog_name="kernwright")
    except KernwrightError as error:
        say(f"kernwright: {error}", err=True)
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
