import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from streamlog.cli.options.options import Json
from streamlog.cli.output import print_findings, print_json
from streamlog.condition import CRITICAL
from streamlog.findings import BAD, CLUSTER, Finding

if TYPE_CHECKING:
    from streamlog.config import Settings

TIMEOUT_S: Final = 3.0


def doctor(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="The node's TOML file; the environment overrides it."),
    ] = None,
    servers: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server", help="Nodes to ask; default: this one and cluster.voters."
        ),
    ] = None,
    http: Annotated[
        list[str] | None,
        typer.Option("--http", help="HTTP address of a node whose clock is compared; repeatable."),
    ] = None,
    nats_monitor: Annotated[
        str | None, typer.Option(help="nats-server's monitoring port, for its clock: http://...")
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, max=60, metavar="SECONDS", help="For each that is asked.")
    ] = TIMEOUT_S,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail as well.")] = False,
    as_json: Json = False,
) -> None:
    """Look at settings, certificates, limits, disk, node, NATS, network, clocks; say what to do.

    Run it on the node's machine, with the node's configuration and as its user, whether the node
    runs or not. Exit code 1 if something of this node is critical: findings on the rest of the
    cluster are printed, and `streamlog cluster check` fails for them. No secret is ever shown.
    """
    from streamlog.cli.doctor.configuration import examine_file, nodes_that_can_be

    settings, found = examine_file(config)
    nodes = [] if settings is None else nodes_that_can_be(settings)
    if not nodes or not as_json:
        _print(found, as_json=as_json)
    if not nodes:
        raise typer.Exit(1)
    refused = tuple(it.what.partition(":")[0] + ":" for it in found if it.severity == CRITICAL)

    async def look() -> None:
        asked = _examine(nodes, config, servers, http or [], nats_monitor, timeout)
        async for finding in asked:
            if finding.severity == CRITICAL and finding.what.startswith(refused):
                continue  # the same file or setting, seen from elsewhere
            found.append(finding)
            if not as_json:
                _print([finding], as_json=False)

    asyncio.run(look())
    if as_json:
        _print(found, as_json=True)
    bad = BAD if strict else (CRITICAL,)
    if any(it.severity in bad for it in found if it.area != CLUSTER):
        raise typer.Exit(1)


async def _examine(
    nodes: Sequence["Settings"],
    config: Path | None,
    servers: str | None,
    http: list[str],
    monitor: str | None,
    timeout_s: float,
) -> AsyncIterator[Finding]:
    """``nodes``: those of this machine, which differ by their ids, folders and ports."""
    from streamlog.cli.doctor import (
        certificates,
        clocks,
        disk,
        limits,
        nats,
        network,
        node,
    )

    settings = nodes[0]
    for finding in limits.examine(settings, config):
        yield finding
    for finding in certificates.examine(settings, datetime.now(UTC)):
        yield finding
    for each in nodes:
        where, reserve_bytes = each.node.data_dir, each.log.metadata_reserve_bytes
        if each is settings or where.exists():  # the first start makes those of the others
            for finding in await asyncio.to_thread(_listed, disk.examine, where, reserve_bytes):
                yield finding
        for finding in await asyncio.to_thread(node.examine, each, timeout_s):
            yield finding
    async for finding in nats.examine(settings, timeout_s):
        yield finding
    asked = servers or ",".join(dict.fromkeys(it for each in nodes for it in _places(each)))
    async for finding in network.examine(settings, asked, timeout_s):
        yield finding
    async for finding in clocks.examine(settings, http, monitor, timeout_s):
        yield finding


def _listed(
    examine: Callable[[Path, int], Iterator[Finding]], where: Path, reserve_bytes: int
) -> list[Finding]:
    return list(examine(where, reserve_bytes))


def _places(settings: "Settings") -> Iterator[str]:
    from streamlog.cli.doctor.configuration import own_address, voters_of

    yield own_address(settings)
    for _, (voter, port) in voters_of(settings):
        yield f"{voter}:{port}"


def _print(findings: list[Finding], *, as_json: bool) -> None:
    if as_json:
        well = not any(it.severity == CRITICAL for it in findings if it.area != CLUSTER)
        print_json({"well": well, "findings": [it._asdict() for it in findings]})
    else:
        print_findings(findings)
