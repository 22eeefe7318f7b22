from typing import TYPE_CHECKING, Any

from streamlog.cli.group.client import GroupName, ask
from streamlog.cli.group.lag import standings, total_lag
from streamlog.cli.options.options import SERVERS, Json, Servers
from streamlog.cli.output import print_json, print_pairs, print_table, say

if TYPE_CHECKING:
    from streamlog.cli.group.client import GroupClient
    from streamlog.cli.group.lag import GroupLag
    from streamlog.client.groups import GroupInfo, GroupMemberInfo


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
