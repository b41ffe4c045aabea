"""kernwright: the command line's root."""

from __future__ import annotations

import os
import sys

import typer

from kernwright.cli.judge.exploits import exploits
from kernwright.cli.judge.judge import judge
from kernwright.cli.judge.sanitize import sanitize
from kernwright.cli.judge.sweep import sweep
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

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Proves faster kernels: frozen tasks, a judge that takes nobody's word, evidence anyone can check.",
)
app.command("judge")(judge)
app.command("capture", context_settings=SETTINGS)(capture)
app.command("report")(report)
app.command("bundle")(bundle)
app.command("build")(build)
app.command("exploits")(exploits)
app.command("explain")(explain)
app.command("sweep")(sweep)
app.command("tune")(tune)
app.command("results")(results)
app.command("sanitize")(sanitize)
app.add_typer(task.app, name="task")
app.add_typer(op.app, name="op")
app.add_typer(baseline.app, name="baseline")
app.add_typer(ledger.app, name="ledger")


@app.callback(invoke_without_command=True)
def root(version: bool = typer.Option(False, "--version", help="Show the version and exit.")) -> None:
    if version:
        say(__version__)
        raise typer.Exit


def main() -> None:
    try:
        app()
    except KernwrightError as error:
        say(f"kernwright: {error}", err=True)
        sys.exit(2)
    except Exception as error:
        if os.environ.get("KERNWRIGHT_TRACE"):
            raise
        say(
            f"kernwright: unforeseen: {type(error).__name__}: {error}\n"
            "  remedy: please report it, with what KERNWRIGHT_TRACE=1 prints",
            err=True,
        )
        sys.exit(2)
    except KeyboardInterrupt:
        say("kernwright: interrupted", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
