import gc
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer


def serve(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="The node's TOML file; the environment overrides it."),
    ] = None,
    example: Annotated[
        bool,
        typer.Option("--example", help="Print a file with every setting at its default; no node."),
    ] = False,
) -> None:
    """Run one node until it is told to stop (Ctrl-C, SIGTERM)."""
    if example:
        from streamlog.cli.output import say

        say((resources.files("streamlog.config") / "node.toml").read_text(), end="")
        return
    gc.disable()  # what is loaded stays: to look for garbage in it is a fifth of the start
    try:
        from streamlog.config import load_settings

        settings = load_settings(config)
        from streamlog.app.run import run_node

        gc.freeze()
    finally:
        gc.enable()
    run_node(settings)
