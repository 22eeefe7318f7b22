"""The commands of ``streamlog lake``: streams as Iceberg tables."""

import typer

from streamlog.cli.lake.maintain import info, maintain
from streamlog.cli.lake.run import run

app = typer.Typer(
    help="Write a stream into an Apache Iceberg table, exactly once, and maintain the table.",
    no_args_is_help=True,
)
app.command("run")(run)
app.command("maintain")(maintain)
app.command("info")(info)
