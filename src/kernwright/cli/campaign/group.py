"""kernwright campaign: find a faster candidate, one recorded idea after the other."""

from __future__ import annotations

import typer

from kernwright.cli.campaign.artifacts import artifacts
from kernwright.cli.campaign.export import export
from kernwright.cli.campaign.profile import profile, reread
from kernwright.cli.campaign.promote import check_model, promote
from kernwright.cli.campaign.review import review
from kernwright.cli.campaign.run import run
from kernwright.cli.campaign.show import diff, plot, show
from kernwright.cli.campaign.start import start
from kernwright.cli.campaign.status import list_, status
from kernwright.cli.campaign.step import step

app = typer.Typer(help="Make an op faster, one idea at a time. Each idea is judged and recorded.", no_args_is_help=True)
app.command()(start)
app.command()(step)
app.command()(run)
app.command()(status)
app.command()(show)
app.command()(diff)
app.command()(plot)
app.command()(profile)
app.command()(reread)
app.command()(review)
app.command("check-model")(check_model)
app.command()(promote)
app.command()(export)
app.command()(artifacts)
app.command("list")(list_)
