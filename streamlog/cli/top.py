"""``streamlog top``: what a cluster does right now, by node, by stream and by group.

Two looks at the same partitions give the rates: how far the high watermarks have moved, and by how much the
logs have grown. A log from which retention removed more than came in shows no bytes. Streams are asked for in
pages; each page has the time at which it was answered, since 10,000 streams take longer than an interval.
"""

import asyncio
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from streamlog.cli.options.connection_options import cluster_at
from streamlog.cli.options.options import SERVERS, Json, Servers
from streamlog.cli.output import Size, control_terminal, print_json, print_table, say
from streamlog.errors import StreamlogError

if TYPE_CHECKING:
    from streamlog.client.cluster import Cluster

PAGE: Final = 1_000
"""Streams that are asked for at once."""
GROUPS_SHOWN: Final = 10
_ENTER: Final = "\x1b[?1049h\x1b[?25l"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_CLEAR: Final = "\x1b[H\x1b[2J"

Partition = tuple[str, int]
"""Its stream and its number."""


class PartitionLook(NamedTuple):
    """A partition at one time; offset and size are None where its leader did not answer."""

    time_s: float
    leader: int | None
    high_watermark: int | None
    size_bytes: int | None
    is_under_replicated: bool


class Load(NamedTuple):
    """What goes into some partitions."""

    name: str
    partitions: int
    records_per_s: float
    bytes_per_s: float
    size_bytes: int
    under_replicated: int


class Activity(NamedTuple):
    """What is shown. ``problem``: why something of it is not known."""

    nodes: list[Load]
    streams: list[Load]
    groups: list[dict[str, Any]]
    problem: str = ""


Looks = Mapping[Partition, PartitionLook]


def loads(
    before: Looks, after: Looks, name_of: Mapping[Partition, str], names: Iterable[str] = ()
) -> list[Load]:
    """By name, the busiest first. ``names``: those that are there though they have nothing."""
    found: dict[str, list[Partition]] = {name: [] for name in names}
    for partition in after:
        if partition in name_of:
            found.setdefault(name_of[partition], []).append(partition)
    by_name = [
        Load(
            name,
            len(partitions),
            sum(_rate(before.get(it), after[it], "high_watermark") for it in partitions),
            sum(_rate(before.get(it), after[it], "size_bytes") for it in partitions),
            sum(after[it].size_bytes or 0 for it in partitions),
            sum(after[it].is_under_replicated for it in partitions),
        )
        for name, partitions in found.items()
    ]
    return sorted(by_name, key=lambda it: (-it.records_per_s, -it.bytes_per_s, it.name))


def _rate(before: PartitionLook | None, after: PartitionLook, field: str) -> float:
    """Of what grows, a second; 0 where one of the looks does not have it, or it is less than before."""
    if before is None or after.time_s <= before.time_s:
        return 0.0
    old, new = getattr(before, field), getattr(after, field)
    if old is None or new is None:
        return 0.0
    return float(max(new - old, 0) / (after.time_s - before.time_s))


async def look(cluster: "Cluster") -> dict[Partition, PartitionLook]:
    """At all partitions that the caller may know of."""
    found: dict[Partition, PartitionLook] = {}
    offset, total = 0, 1
    while offset < total:
        page = await cluster.operate("streams.list", {"offset": offset, "limit": PAGE})
        now_s = time.monotonic()
        for stream in page["streams"]:
            for it in stream["partitions"]:
                found[stream["config"]["name"], it["partition"]] = PartitionLook(
                    now_s,
                    it["leader"],
                    it["high_watermark"],
                    it["size_bytes"],
                    len(it["isr"]) < len(it["replicas"]),
                )
        offset, total = offset + PAGE, page["total"]
    return found


async def activity(cluster: "Cluster", before: Looks, after: Looks) -> Activity:
    """What happened between two looks."""
    from streamlog.cli.group.client import GroupClient
    from streamlog.cli.group.commands import missing

    problems: list[str] = []
    nodes: list[str] = []
    groups: list[dict[str, Any]] = []
    try:
        topology = await cluster.topology([])
        nodes = [str(node) for node in sorted(topology.nodes)]
    except StreamlogError as error:
        problems.append(f"nodes: {error}")
    try:
        groups, missing_nodes = await GroupClient(cluster, patience_ms=0).all()
        if missing_nodes:
            problems.append(missing(missing_nodes))
    except StreamlogError as error:
        problems.append(f"groups: {error}")
    leaders = {key: "-" if it.leader is None else str(it.leader) for key, it in after.items()}
    return Activity(
        sorted(loads(before, after, leaders, nodes), key=lambda it: it.name),
        loads(before, after, {key: key[0] for key in after}),
        sorted(groups, key=lambda it: -(it["lag"] or 0)),
        "; ".join(problems),
    )


def top(
    interval: Annotated[
        float, typer.Option(min=0.2, metavar="SECONDS", help="Between two looks.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print it once, and end.")] = False,
    rows: Annotated[
        int | None,
        typer.Option(min=1, help="So many streams. Default: all; at a terminal, what fits."),
    ] = None,
    servers: Servers = SERVERS,
    as_json: Json = False,
) -> None:
    """What the cluster does right now: rates of nodes and streams, the busiest first; lags of groups."""
    live = sys.stdout.isatty() and not once and not as_json
    if live:
        control_terminal(_ENTER)
    try:
        asyncio.run(_run(servers, interval, rows, once=once, as_json=as_json, live=live))
    finally:
        if live:
            control_terminal(_LEAVE)


async def _run(
    servers: str, interval_s: float, rows: int | None, *, once: bool, as_json: bool, live: bool
) -> None:
    before: Looks = {}
    is_first = True
    async with cluster_at(servers) as cluster:
        while True:
            begun_s = time.monotonic()
            try:
                after = await look(cluster)
                if not is_first:
                    shown = await activity(cluster, before, after)
                    _show(shown, rows, as_json=as_json, live=live)
                    if once:
                        return
                before, is_first = after, False
            except StreamlogError as error:
                if not live:
                    raise
                control_terminal(_CLEAR)
                say(f"{error}; trying again, Ctrl-C ends it", flush=True)
            await asyncio.sleep(max(interval_s - (time.monotonic() - begun_s), 0.05))


def _show(shown: Activity, rows: int | None, *, as_json: bool, live: bool) -> None:
    if as_json:
        print_json(
            {
                "nodes": [_as_json(it) for it in shown.nodes],
                "streams": [_as_json(it) for it in shown.streams[:rows]],
                "groups": shown.groups,
                "problem": shown.problem or None,
            }
        )
        sys.stdout.flush()
        return
    groups = shown.groups[:GROUPS_SHOWN]
    if live:
        others = len(shown.nodes) + len(groups) + 9
        fitting = max(shutil.get_terminal_size().lines - others, 3)
        rows = min(rows or fitting, fitting)
        control_terminal(_CLEAR)
    say(_headline(shown))
    say()
    _table("NODE", shown.nodes)
    say()
    _table("STREAM", shown.streams[:rows])
    if groups:
        say()
        print_table(
            ("GROUP", "STATE", "MEMBERS", "LAG"),
            [(it["group"], it["state"], it["members"], it["lag"]) for it in groups],
        )
    if not live:
        say()
    with suppress(OSError):
        sys.stdout.flush()


def _headline(shown: Activity) -> str:
    under = sum(it.under_replicated for it in shown.streams)
    words = [
        f"{len(shown.nodes)} nodes, {len(shown.streams)} streams",
        f"{sum(it.records_per_s for it in shown.streams):.0f} records/s",
        f"{Size(sum(it.bytes_per_s for it in shown.streams))}/s",
        f"{under} partitions under-replicated" if under else "every replica in sync",
    ]
    return "; ".join([*words, shown.problem] if shown.problem else words)


def _table(kind: str, found: Sequence[Load]) -> None:
    partitions = "LEADS" if kind == "NODE" else "PARTITIONS"
    print_table(
        (kind, partitions, "RECORDS/S", "BYTES/S", "SIZE", "UNDER-REPLICATED"),
        [
            (
                it.name,
                it.partitions,
                round(it.records_per_s),
                Size(it.bytes_per_s),
                Size(it.size_bytes),
                it.under_replicated,
            )
            for it in found
        ],
    )


def _as_json(it: Load) -> dict[str, Any]:
    rates = {"records_per_s": round(it.records_per_s, 1), "bytes_per_s": round(it.bytes_per_s, 1)}
    return {**it._asdict(), **rates}
