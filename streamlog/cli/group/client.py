"""How the commands ask a cluster about its groups."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from streamlog.cli.cluster.controller import has_controller
from streamlog.cli.options.connection_options import chosen_security
from streamlog.errors import GroupNotEmpty, GroupNotFound, RequestTimedOut

if TYPE_CHECKING:
    from streamlog.client.cluster import Cluster
    from streamlog.client.groups import GroupInfo, Groups


MEMBERS_NAMED = 3
TIMEOUT_MS = 10_000
"""A node that is silent for so long is asked again: twice what a commit may take."""

T = TypeVar("T")


class GroupClient(NamedTuple):
    """What a command may ask."""

    cluster: "Cluster"
    groups: "Groups"

    async def existing(self, group_id: str) -> "GroupInfo":
        """Raises GroupNotFound."""
        group = await self.groups.describe(group_id)
        if not group.exists and not await self.groups.committed(group_id):
            raise GroupNotFound(
                f"there is no group {group_id!r}; `streamlog group ls` names those there are"
            )
        return group


def ask(servers: str, question: Callable[[GroupClient], Awaitable[T]]) -> T:
    """What ``question`` finds out from the cluster at ``servers``.

    Where no node answers at all it fails at once, and where there is no controller at the first
    node that does not; what comes later is waited for.
    """
    from streamlog.client.cluster import Cluster
    from streamlog.client.groups import PATIENCE_MS, Groups

    async def asked() -> T:
        async with Cluster.at(
            servers, timeout_ms=TIMEOUT_MS, security=chosen_security()
        ) as cluster:
            await cluster.topology()
            decided = await has_controller(cluster)
            groups = Groups(cluster, patience_ms=PATIENCE_MS if decided else 0)
            try:
                return await question(GroupClient(cluster, groups))
            except RequestTimedOut as error:
                remedy = "`streamlog cluster check` says what is away"
                if not decided:
                    remedy = f"there is no controller: {remedy}"
                raise RequestTimedOut(f"{error}; {remedy}") from error

    return asyncio.run(asked())


def check_empty(group: "GroupInfo") -> None:
    """Raises GroupNotEmpty, with the members' names and the remedy."""
    if not group.members:
        return
    named = [member.name for member in group.members[:MEMBERS_NAMED]]
    more = len(group.members) - len(named)
    names = ", ".join((*named, f"and {more} more") if more else named)
    count = f"{len(group.members)} member{'s' if len(group.members) > 1 else ''}"
    raise GroupNotEmpty(
        f"group {group.group_id!r} has {count} ({names}); stop them first"
        " (one that was killed is gone after its session.timeout.ms)"
    )
