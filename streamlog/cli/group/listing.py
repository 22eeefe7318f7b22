from typing import TYPE_CHECKING, Any

from streamlog.cli.group.client import ask
from streamlog.cli.group.lag import standings, total_lag
from streamlog.cli.options.options import SERVERS, Json, Servers
from streamlog.cli.output import print_json, print_table

if TYPE_CHECKING:
    from streamlog.cli.group.client import GroupClient


def list_groups(servers: Servers = SERVERS, as_json: Json = False) -> None:
    """All groups: state, members, and how many records they have yet to read in all."""
    rows = ask(servers, _rows)
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


async def _rows(asker: "GroupClient") -> list[dict[str, Any]]:
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
