"""``streamlog health`` without the other commands: a third of the processor time."""

import typer

from streamlog.cli.node.health import health
from streamlog.cli.run import run

app = typer.Typer(
    name="streamlog",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(health)


@app.callback()
def _only_one_of_several() -> None:
    """Without this, typer would not have the command's name be said."""


def main() -> None:
    """As ``program.main``."""
    run(app)
