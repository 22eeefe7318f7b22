from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from streamlog.cli.group.client import GroupName, ask, check_empty
from streamlog.cli.group.plan import Change, LogExtent, change_of
from streamlog.cli.options.options import SERVERS, Json, Servers, Yes
from streamlog.cli.output import print_json, print_table, say
from streamlog.errors import ConfigError, GroupNotFound, StalePartition

if TYPE_CHECKING:
    from streamlog.cli.group.client import GroupClient
    from streamlog.cli.group.target import Target
    from streamlog.client.groups import CommittedInfo
    from streamlog.model import TopicPartition

Offsets = Mapping["TopicPartition", "CommittedInfo"]


def reset_offsets(
    group: GroupName,
    to: Annotated[
        str | None,
        typer.Option("--to", help="earliest, latest, an offset, or a time (ISO 8601)."),
    ] = None,
    by: Annotated[
        int | None,
        typer.Option("--shift-by", metavar="N", help="So many records on; back if negative."),
    ] = None,
    stream: Annotated[
        list[str] | None,
        typer.Option("--stream", help="Only these; may be repeated. Default: all it committed in."),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", min=0, help="Only these of the stream; may be repeated."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would become of it; change nothing.")
    ] = False,
    yes: Yes = False,
    servers: Servers = SERVERS,
    as_json: Json = False,
) -> None:
    """Have a group go on elsewhere. Nobody may be in it; what changes is shown, and asked about."""
    from streamlog.cli.group.target import parse_target

    target = parse_target(to, by)
    if partition and len(stream or ()) != 1:
        raise ConfigError("--partition", "needs one stream", "name it with --stream")
    changes = ask(servers, lambda asker: _plan(asker, group, stream, partition, target))
    if not as_json:
        _print(changes)
    if not dry_run:
        if not yes:
            typer.confirm(f"Have group {group} go on there?", abort=True, err=True)
        ask(servers, lambda asker: _carry_out(asker, group, changes))
    if as_json:
        plan = [change.as_json() for change in changes]
        print_json({"group": group, "changed": not dry_run, "partitions": plan})
    else:
        say(f"group {group} {'stays as it is' if dry_run else 'goes on there'}")


async def _plan(
    asker: "GroupClient",
    group_id: str,
    streams: list[str] | None,
    numbers: list[int] | None,
    target: "Target",
) -> list[Change]:
    group = await asker.groups.describe(group_id)
    check_empty(group)
    committed = await asker.groups.committed(group_id)
    tps = await _partitions(asker, group_id, streams, numbers, committed)
    return [await _change(asker, tp, committed.get(tp), target) for tp in tps]


async def _partitions(
    asker: "GroupClient",
    group_id: str,
    streams: list[str] | None,
    numbers: list[int] | None,
    committed: Offsets,
) -> "list[TopicPartition]":
    """Raises StreamNotFound, PartitionNotFound; GroupNotFound where there is nothing to go by."""
    from streamlog.model import TopicPartition

    if streams is None:
        if not committed:
            raise GroupNotFound(
                f"group {group_id!r} has committed nothing; name the streams with --stream"
            )
        return sorted(committed)
    found = []
    for name in sorted(set(streams)):
        topic = await asker.cluster.topic(name)
        chosen = sorted(set(numbers)) if numbers else range(len(topic.partitions))
        found += [TopicPartition(name, topic.partition(it).partition) for it in chosen]
    return found


async def _change(
    asker: "GroupClient", tp: "TopicPartition", committed: "CommittedInfo | None", target: "Target"
) -> Change:
    from streamlog.client.position import Timestamp

    cluster = asker.cluster
    extent = LogExtent(await cluster.earliest_offset(tp), await cluster.latest_offset(tp))
    at_time = None
    if isinstance(target, Timestamp):
        at_time = await cluster.offset_for_timestamp(tp, target.timestamp_ms)
    return change_of(tp, committed, extent, target, at_time)


async def _carry_out(asker: "GroupClient", group_id: str, changes: list[Change]) -> None:
    """Only if it is as it was shown. The coordinator refuses it for a group with members."""
    from streamlog.client.groups import CommittedInfo

    check_empty(await asker.groups.describe(group_id))
    committed = await asker.groups.committed(group_id)
    for change in changes:
        if committed.get(change.tp) != change.committed:
            raise StalePartition(
                f"group {group_id!r} has committed something in {change.tp} meanwhile;"
                " nothing is changed, ask again"
            )
    wanted = {change.tp: CommittedInfo(change.offset) for change in changes}
    await asker.groups.commit(group_id, wanted)


def _print(changes: list[Change]) -> None:
    print_table(
        ("STREAM", "PARTITION", "COMMITTED", "NEW", "EFFECT"),
        (
            (
                it.tp.stream,
                it.tp.partition,
                it.committed and it.committed.offset,
                it.offset,
                it.effect,
            )
            for it in changes
        ),
    )
