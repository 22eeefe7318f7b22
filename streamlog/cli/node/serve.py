import gc
from pathlib import Path
from typing import Annotated

import typer


def serve(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="The node's TOML file; the environment overrides it."),
    ] = None,
) -> None:
    """Run one node until it is told to stop (Ctrl-C, SIGTERM)."""
    gc.disable()  # what is loaded stays: to look for garbage in it is a fifth of the start
    try:
        from streamlog.config import load_settings

        settings = load_settings(config)
        from streamlog.app.run import run_node

        gc.freeze()
    finally:
        gc.enable()
    run_node(settings)
