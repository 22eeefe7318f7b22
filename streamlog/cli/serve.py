from pathlib import Path
from typing import Annotated

import typer

from streamlog.config import load_settings


def serve(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="The node's TOML file; the environment overrides it."),
    ] = None,
) -> None:
    """Run one node until it is told to stop (Ctrl-C, SIGTERM)."""
    settings = load_settings(config)
    from streamlog.app.run import run_node

    run_node(settings)
