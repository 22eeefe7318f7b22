from pathlib import Path
from typing import Annotated

import typer

from streamlog.cli.options.options import Json
from streamlog.cli.output import print_json, say


def verify(
    directory: Annotated[
        Path,
        typer.Argument(exists=True, metavar="DIR", help="A node's --dir, or a channel's folder."),
    ],
    channel: Annotated[
        str | None, typer.Option("--channel", help="Which one, where there are several.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a chain, every hash and record of it; no node is needed. Exit code 1 if it is wrong."""
    from streamlog.ledger.files import verify_folder

    report = verify_folder(directory, channel)
    if as_json:
        print_json(
            {
                "height": report.height,
                "tip": report.tip,
                "records": report.records,
                "configurations": report.configurations,
            }
        )
        return
    say(
        f"{report.height} blocks, {report.records} records, {report.configurations} configurations:"
        f" one chain; its last hash is {report.tip or 'none'}"
    )
