"""``streamlog group reset-offsets``: the target of a reset, and its new offset in each partition."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from streamlog.cli.group.client import ask, check_empty
from streamlog.cli.options import names
from streamlog.cli.options.names import GroupName
from streamlog.cli.options.options import SERVERS, Json, Servers, Yes
from streamlog.cli.options.position import parse_time
from streamlog.cli.output import print_json, print_table, say
from streamlog.client.position import (
    EARLIEST,
    LATEST,
    Earliest,
    Latest,
    Offset,
    Position,
    Timestamp,
)
from streamlog.errors import (
    BrokenInvariant,
    ConfigError,
    GroupNotFound,
    InvalidRequest,
    StalePartition,
)
from streamlog.model import TopicPartition

if TYPE_CHECKING:
    from streamlog.cli.group.client import GroupClient
    from streamlog.client.groups import CommittedInfo
    from streamlog.model import TopicPartition


@dataclass(frozen=True)
class Shift:
    """From what is committed, so many records on; back where it is negative."""

    records: int


Target = Position | Shift


def parse_target(
    *,
    to_earliest: bool = False,
    to_latest: bool = False,
    to_offset: int | None = None,
    to_datetime: str | None = None,
    shift_by: int | None = None,
) -> Target:
    """Of the options, one of which must be given. Raises ConfigError."""
    given = {
        "--to-earliest": to_earliest or None,
        "--to-latest": to_latest or None,
        "--to-offset": to_offset,
        "--to-datetime": to_datetime,
        "--shift-by": shift_by,
    }
    names = [name for name, value in given.items() if value is not None]
    if not names:
        *most, last = given
        raise ConfigError("GROUP", "no position is given", f"name {', '.join(most)} or {last}")
    if len(names) > 1:
        raise ConfigError(names[0], f"cannot go with {names[1]}", "name one of them")
    if to_datetime is not None:
        return parse_time(to_datetime, "--to-datetime")
    if to_offset is not None:
        return Offset(to_offset)
    if shift_by is not None:
        return Shift(shift_by)
    return EARLIEST if to_earliest else LATEST


class LogExtent(NamedTuple):
    """The records that a consumer can read: from ``start``, below ``end``."""

    start: int
    end: int


class Change(NamedTuple):
    """Of what a group has committed in one partition."""

    tp: TopicPartition
    committed: "CommittedInfo | None"
    offset: int
    """Where it is to go on."""
    skipped: int
    """Records that are still there, and that the group would have read."""
    repeated: int
    """Offsets that it reads once more."""
    note: str = ""
    """Why it is not quite what was asked for."""

    @property
    def effect(self) -> str:
        """In words."""
        if self.committed is None:
            words = "nothing was committed yet"
        elif self.skipped:
            words = f"skips {_records(self.skipped)}"
        elif self.repeated:
            words = f"repeats {_records(self.repeated)}"
        else:
            words = "no change" if self.offset == self.committed.offset else "skips nothing"
        return f"{words} ({self.note})" if self.note else words

    def as_json(self) -> dict[str, Any]:
        """As ``--json`` shows it."""
        return {
            "stream": self.tp.stream,
            "partition": self.tp.partition,
            "committed_offset": None if self.committed is None else self.committed.offset,
            "metadata": None if self.committed is None else self.committed.metadata,
            "new_offset": self.offset,
            "skipped": self.skipped,
            "repeated": self.repeated,
            "note": self.note or None,
        }


def change_of(
    tp: TopicPartition,
    committed: "CommittedInfo | None",
    extent: LogExtent,
    target: Target,
    at_time: int | None = None,
) -> Change:
    """``at_time``: the first offset of a target's time, if there is one.

    Raises InvalidRequest where the target is not in the partition.
    """
    offset, note = _offset(tp, committed, extent, target, at_time)
    if not extent.start <= offset <= extent.end:
        raise BrokenInvariant(f"offset {offset} is outside of {extent}")
    if committed is None:
        return Change(tp, None, offset, 0, 0, note)
    skipped = max(0, offset - max(committed.offset, extent.start))
    return Change(tp, committed, offset, skipped, max(0, committed.offset - offset), note)


def _offset(
    tp: TopicPartition,
    committed: "CommittedInfo | None",
    extent: LogExtent,
    target: Target,
    at_time: int | None,
) -> tuple[int, str]:
    match target:
        case Earliest():
            return extent.start, ""
        case Latest():
            return extent.end, ""
        case Timestamp():
            return (extent.end, "no record is so late") if at_time is None else (at_time, "")
        case Shift(records):
            return _shifted(tp, committed, extent, records)
        case Offset(offset):
            if extent.start <= offset <= extent.end:
                return offset, ""
    raise InvalidRequest(
        f"{tp} has no offset {offset}, only {extent.start} to {extent.end};"
        " choose one of these, or other partitions with --partition"
    )


def _shifted(
    tp: TopicPartition, committed: "CommittedInfo | None", extent: LogExtent, records: int
) -> tuple[int, str]:
    if committed is None:
        text = f"nothing is committed in {tp} to count from; use another option than --shift-by"
        raise InvalidRequest(text)
    wanted = committed.offset + records
    if wanted < extent.start:
        return extent.start, f"the log begins at {extent.start}"
    if wanted > extent.end:
        return extent.end, f"the log ends at {extent.end}"
    return wanted, ""


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"


Offsets = Mapping["TopicPartition", "CommittedInfo"]


def reset_offsets(
    group: GroupName,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the first record of each partition.")
    ] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="To the end of each partition.")
    ] = False,
    to_offset: Annotated[
        int | None, typer.Option(min=0, metavar="OFFSET", help="To this offset.")
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="To the first record that is not older: 2026-01-31T18:00:00, local without a zone.",
        ),
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(metavar="N", help="Shift the offset by N records (negative: back)."),
    ] = None,
    stream: Annotated[
        list[str] | None,
        typer.Option(
            "--stream",
            help="Only these; may be repeated. Default: all it committed in.",
            autocompletion=names.streams,
        ),
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
    """Set a group's offsets. The group must have no members; the changes are shown first."""

    target = parse_target(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_offset=to_offset,
        to_datetime=to_datetime,
        shift_by=shift_by,
    )
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
