import json
from pathlib import Path
from typing import Annotated, Final

import typer

from streamlog.cli.options.options import Json
from streamlog.cli.output import print_json, say

TIMEOUT_S: Final = 3.0


def health(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="The node's TOML file; the environment overrides it."),
    ] = None,
    ready: Annotated[
        bool, typer.Option("--ready", help="Does it do all of its work, too? (/readyz)")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0.1, max=60, metavar="SECONDS", help="For each step of asking.")
    ] = TIMEOUT_S,
    as_json: Json = False,
) -> None:
    """Is the node on this machine alive? For probes of containers; exit code 1 if it is not.

    Asks the node's HTTP at the address and by the TLS that its own configuration tells. No login is
    needed, also where all else wants one.
    """
    from streamlog.cli.node.node_http import NodeHttpClient
    from streamlog.config import load_settings

    http = NodeHttpClient(load_settings(config))
    answer = http.get("/readyz" if ready else "/healthz", timeout)
    well = answer.status == 200
    word = "ready" if ready else "alive"
    if as_json:
        print_json({"url": http.url, word: well, "why": None if well else _why(answer.text)})
    else:
        say(f"{http.url} is {word}" if well else f"{http.url} is not {word}: {_why(answer.text)}")
    if not well:
        raise typer.Exit(1)


def _why(text: str) -> str:
    """The reasons of ``/readyz`` in words; else what there is of them."""
    try:
        reasons = json.loads(text)["reasons"]
        return "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    except (ValueError, KeyError, TypeError, AttributeError):
        return " ".join(text.split())[:200]
