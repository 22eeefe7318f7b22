import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from streamlog.cli.options.options import Json, OneNode
from streamlog.cli.output import print_json, say
from streamlog.errors import NodeUnreachable

if TYPE_CHECKING:
    from streamlog.cli.node.node_http import NodeHttpClient

TIMEOUT_S: Final = 3.0


def health(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="The node's TOML file; the environment overrides it."),
    ] = None,
    node: OneNode = None,
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
    needed, also where all else wants one. Of the nodes of node.processes all are asked, or the one
    of --node; it is enough that one of them is not.
    """
    from streamlog.cli.node.node_http import NodeHttpClient
    from streamlog.config import load_nodes, node_of

    nodes = load_nodes(config)
    asked = nodes if node is None else [node_of(nodes, node)]
    word = "ready" if ready else "alive"
    path = "/readyz" if ready else "/healthz"
    answers = [
        _answer(NodeHttpClient(it.settings), path, word, timeout, alone=len(asked) == 1)
        for it in asked
    ]
    well = all(it[word] for it in answers)
    if as_json:
        print_json(answers[0] if len(asked) == 1 else {word: well, "nodes": answers})
    else:
        for it in answers:
            said = f"is {word}" if it[word] else f"is not {word}: {it['why']}"
            say(f"{it['url']} {said}")
    if not well:
        raise typer.Exit(1)


def _answer(
    http: "NodeHttpClient", path: str, word: str, timeout_s: float, *, alone: bool
) -> dict[str, object]:
    """Raises NodeUnreachable if no other node is asked."""
    try:
        answer = http.get(path, timeout_s)
    except NodeUnreachable as error:
        if alone:
            raise
        return {"url": http.url, word: False, "why": str(error)}
    well = answer.status == 200
    return {"url": http.url, word: well, "why": None if well else _why(answer.text)}


def _why(text: str) -> str:
    """The reasons of ``/readyz`` in words; else what there is of them."""
    try:
        reasons = json.loads(text)["reasons"]
        return "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    except (ValueError, KeyError, TypeError, AttributeError):
        return " ".join(text.split())[:200]
