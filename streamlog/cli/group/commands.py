"""The commands of ``streamlog group``."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from streamlog.cli.group import reset
from streamlog.cli.group.client import ask, check_empty
from streamlog.cli.options.names import GroupName
from streamlog.cli.options.options import SERVERS, Json, Servers, Yes
from streamlog.cli.output import print_json, print_pairs, print_table, say
from streamlog.errors import GroupNotEmpty, InvalidRequest
from streamlog.model import TopicPartition, consumer_lag

if TYPE_CHECKING:
    from streamlog.cli.group.client import GroupClient
    from streamlog.client.groups import CommittedInfo, GroupInfo, GroupMemberInfo
    from streamlog.model import TopicPartition


class GroupLag(NamedTuple):
    """Of a group in one partition."""

    tp: TopicPartition
    committed: "CommittedInfo | None"
    """None: it is assigned, and nothing was committed yet."""
    end_offset: int | None
    """The high watermark; None where the leader could not be asked."""
    member: "GroupMemberInfo | None"
    """The member that reads it."""

    @property
    def lag(self) -> int | None:
        """Committed records that are yet to be read; None where that cannot be known."""
        if self.committed is None or self.end_offset is None:
            return None
        return consumer_lag(self.end_offset, self.committed.offset)

    def as_json(self) -> dict[str, Any]:
        """As ``--json`` shows it."""
        committed = self.committed
        return {
            "stream": self.tp.stream,
            "partition": self.tp.partition,
            "committed_offset": None if committed is None else committed.offset,
            "end_offset": self.end_offset,
            "lag": self.lag,
            "leader_epoch": None if committed is None else committed.leader_epoch,
            "metadata": None if committed is None else committed.metadata,
            "member_id": None if self.member is None else self.member.member_id,
        }


def standings(
    group: "GroupInfo",
    committed: Mapping[TopicPartition, "CommittedInfo"],
    ends: Mapping[TopicPartition, int],
) -> list[GroupLag]:
    """In order; all partitions that the group has committed something in, or reads."""
    readers = {tp: member for member in group.members for tp in member.partitions}
    return [
        GroupLag(tp, committed.get(tp), ends.get(tp), readers.get(tp))
        for tp in sorted(committed.keys() | readers.keys())
    ]


def total_lag(found: Iterable[GroupLag]) -> int | None:
    """Over what was committed; None if any of it cannot be known, or nothing was."""
    lags = [it.lag for it in found if it.committed is not None]
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known and len(known) == len(lags) else None


def list_groups(servers: Servers = SERVERS, as_json: Json = False) -> None:
    """All groups: state, members, and how many records they have yet to read in all."""
    rows = ask(servers, group_rows)
    if as_json:
        print_json(rows)
        return
    print_table(
        ("GROUP", "STATE", "COORDINATOR", "MEMBERS", "PARTITIONS", "LAG"),
        (
            (
                row["group"],
                row["state"],
                row["coordinator"],
                row["members"],
                row["partitions"],
                row["lag"],
            )
            for row in rows
        ),
    )


async def group_rows(asker: "GroupClient") -> list[dict[str, Any]]:
    described = [await asker.groups.describe(group_id) for group_id in await asker.groups.ids()]
    groups = [group for group in described if group.exists]  # some may have gone meanwhile
    committed = await asker.groups.all_committed(group.group_id for group in groups)
    ends = await asker.cluster.latest_offsets({tp for it in committed.values() for tp in it})
    rows = []
    for group in groups:
        found = standings(group, committed[group.group_id], ends)
        rows.append(
            {
                "group": group.group_id,
                "state": group.state,
                "coordinator": group.coordinator,
                "members": len(group.members),
                "partitions": len(found),
                "lag": total_lag(found),
            }
        )
    return rows


def info(group: GroupName, servers: Servers = SERVERS, as_json: Json = False) -> None:
    """One group: who is in it, who reads what, and how far each partition is read."""
    found, partitions = ask(servers, lambda asker: _ask(asker, group))
    if as_json:
        print_json(_as_json(found, partitions))
        return
    print_pairs(
        [
            ("GroupInfo", found.group_id),
            ("State", found.state),
            ("Assignor", found.assignor),
            ("Coordinator", f"node {found.coordinator}"),
            ("Lag", total_lag(partitions)),
        ]
    )
    say()
    if found.members:
        print_table(
            ("MEMBER", "CLIENT", "HOST", "READS"),
            (
                (it.instance_id or it.member_id, it.client_id, it.host, _streams(it))
                for it in found.members
            ),
        )
        say()
    print_table(
        ("STREAM", "PARTITION", "COMMITTED", "END", "LAG", "CLIENT", "METADATA"),
        (
            (
                it.tp.stream,
                it.tp.partition,
                it.committed and it.committed.offset,
                it.end_offset,
                it.lag,
                it.member and it.member.client_id,
                it.committed and _printable(it.committed.metadata),
            )
            for it in partitions
        ),
    )


async def _ask(asker: "GroupClient", group_id: str) -> "tuple[GroupInfo, list[GroupLag]]":
    group = await asker.existing(group_id)
    committed = await asker.groups.committed(group_id)
    assigned = {tp for member in group.members for tp in member.partitions}
    ends = await asker.cluster.latest_offsets(assigned | committed.keys())
    return group, standings(group, committed, ends)


def _streams(member: "GroupMemberInfo") -> list[str]:
    """``orders/0+1`` for each stream."""
    numbers: dict[str, list[str]] = {}
    for tp in member.partitions:
        numbers.setdefault(tp.stream, []).append(str(tp.partition))
    return [f"{stream}/{'+'.join(them)}" for stream, them in numbers.items()]


def _printable(metadata: str) -> str:
    """It is the clients' own; some put a NUL behind it."""
    return "".join(it for it in metadata if it.isprintable())


def _as_json(group: "GroupInfo", partitions: "list[GroupLag]") -> dict[str, Any]:
    return {
        "group": group.group_id,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "lag": total_lag(partitions),
        "members": [
            {
                "member_id": it.member_id,
                "instance_id": it.instance_id,
                "client_id": it.client_id,
                "host": it.host,
                "partitions": [tp._asdict() for tp in it.partitions],
            }
            for it in group.members
        ],
        "partitions": [it.as_json() for it in partitions],
    }


Wanted = dict[str, "list[TopicPartition]"]
"""What each group is to forget; all where nothing is named."""


def remove(
    groups: Annotated[
        list[str], typer.Argument(metavar="GROUP...", help="The groups' names (group.id).")
    ],
    offsets: Annotated[
        list[str] | None,
        typer.Option(
            "--offsets",
            metavar="STREAM",
            help="Only what they committed in this stream; may be repeated.",
        ),
    ] = None,
    yes: Yes = False,
    servers: Servers = SERVERS,
    as_json: Json = False,
) -> None:
    """Remove groups without members. All are looked at before any of them goes."""
    wanted = ask(servers, lambda asker: _look(asker, groups, offsets))
    what = "what {} committed in {}" if offsets else "{} and what they committed"
    named = what.format(", ".join(wanted), ", ".join(offsets or ()))
    if not yes:
        typer.confirm(f"Remove {named}, for ever?", abort=True, err=True)
    done: list[dict[str, Any]] = []
    try:
        ask(servers, lambda asker: _remove(asker, wanted, done))
    finally:
        if as_json:
            print_json({"removed": done})
        else:
            for it in done:
                say(_said(it))


async def _look(asker: "GroupClient", groups: list[str], streams: list[str] | None) -> Wanted:
    """Raises GroupNotFound, GroupNotEmpty, InvalidRequest: then none is touched."""
    wanted: Wanted = {}
    for group_id in dict.fromkeys(groups):
        group = await asker.existing(group_id)
        if not streams:
            check_empty(group)
            wanted[group_id] = []
            continue
        committed = await asker.groups.committed(group_id)
        wanted[group_id] = sorted(tp for tp in committed if tp.stream in streams)
        for stream in streams:
            if not any(tp.stream == stream for tp in wanted[group_id]):
                raise InvalidRequest(
                    f"group {group_id!r} has committed nothing in {stream!r};"
                    f" `streamlog group info {group_id}` shows where it has"
                )
        for member in group.members:
            if any(tp.stream in streams for tp in member.partitions):
                raise GroupNotEmpty(
                    f"{member.name} reads that for group {group_id!r}; stop the group's members"
                    " first, or have them unsubscribe"
                )
    return wanted


async def _remove(asker: "GroupClient", wanted: Wanted, done: list[dict[str, Any]]) -> None:
    """``done`` has what is gone, also when one of them is refused."""
    for group_id, tps in wanted.items():
        if tps:
            await asker.groups.delete_offsets(group_id, tps)
        else:
            await asker.groups.delete(group_id)
        done.append({"group": group_id, "offsets": [tp._asdict() for tp in tps] if tps else None})


def _said(done: dict[str, Any]) -> str:
    if done["offsets"] is None:
        return f"group {done['group']} is removed"
    streams = ", ".join(dict.fromkeys(tp["stream"] for tp in done["offsets"]))
    return f"group {done['group']} has forgotten {streams}"


app = typer.Typer(
    help="Look at consumer groups, and change what they committed.", no_args_is_help=True
)

app.command("ls")(list_groups)
app.command()(info)
app.command()(reset.reset_offsets)
app.command("rm")(remove)
