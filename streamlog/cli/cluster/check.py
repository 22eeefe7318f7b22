from typing import TYPE_CHECKING

import typer

from streamlog.cli.cluster.controller import ask
from streamlog.cli.cluster.findings import findings
from streamlog.cli.cluster.waiting import wait_until
from streamlog.cli.options.options import SERVERS, Json, Servers, Timeout, Wait
from streamlog.cli.output import print_json, say
from streamlog.errors import RequestTimedOut

if TYPE_CHECKING:
    from streamlog.cli.cluster.controller import Controller

SHOWN_WHILE_WAITING = 3


def check(
    wait: Wait = False,
    timeout: Timeout = None,
    servers: Servers = SERVERS,
    as_json: Json = False,
) -> None:
    """Is every node alive and well, every replica in sync? Exit code 1 if not: stop no other."""
    found = ask(servers, lambda controller: _find(controller, wait, timeout))
    if as_json:
        print_json({"findings": found})
    elif found:
        say("\n".join(found))
    else:
        say("every node is alive and well, every replica is in sync")
    if found:
        raise typer.Exit(1)


async def _find(controller: "Controller", wait: bool, timeout_s: float | None) -> list[str]:
    found: list[str] = []

    async def whole() -> str | None:
        nonlocal found
        found = findings(await controller.describe(), await controller.topology())
        more = len(found) - SHOWN_WHILE_WAITING
        shown = "; ".join(found[:SHOWN_WHILE_WAITING])
        return f"{shown}; and {more} more" if more > 0 else shown or None

    if not wait:
        await whole()
        return found
    try:
        await wait_until(whole, timeout_s)
    except RequestTimedOut:
        if not found:  # nobody could be asked
            raise
    return found
