import gc
from pathlib import Path
from typing import Annotated

import typer


def serve(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="The node's TOML file; the environment overrides it."),
    ] = None,
    node: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="ID", help="Of the nodes of node.processes, run this one alone."
        ),
    ] = None,
    supervised: Annotated[bool, typer.Option("--supervised", hidden=True)] = False,
) -> None:
    """Run one node, or the nodes of node.processes, until told to stop (Ctrl-C, SIGTERM)."""
    gc.disable()  # what is loaded stays: to look for garbage in it is a fifth of the start
    try:
        from streamlog.config import check_folders, load_settings, node_of, nodes_of

        settings = load_settings(config)
        check_folders(settings)
        nodes = nodes_of(settings)
        supervises = node is None and len(nodes) > 1
        chosen = node_of(nodes, node)
        if not supervises:
            from streamlog.app.run import run_node
        from streamlog.app.supervisor import Leash, run_supervisor

        gc.freeze()
    finally:
        gc.enable()
    if supervises:
        run_supervisor(chosen.settings, [it.settings.node.id for it in nodes], config)
    else:
        run_node(chosen, Leash.take() if supervised else None)
