"""How the commands ask a cluster about its groups: by the operations ``groups.*``."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from streamlog.cli.cluster.controller import has_controller
from streamlog.cli.options.connection_options import chosen_security
from streamlog.errors import GroupNotFound, NotAuthorized, RequestTimedOut

if TYPE_CHECKING:
    from streamlog.client.cluster import Cluster

PATIENCE_MS: Final = 30_000
"""A coordinator that moves or restarts is back in a moment."""
TIMEOUT_MS: Final = 10_000
"""A node that is silent for so long is asked again: twice what a commit may take."""
PAGE: Final = 1_000
"""Groups of one list."""
DESCRIBED_AT_ONCE: Final = 16
CLASSIC: Final = "classic"
"""The type of all groups of a node of 0.1.0, which names none."""

T = TypeVar("T")


class Listed(NamedTuple):
    """The groups of all nodes, or of those that answer."""

    groups: list[dict[str, Any]]
    missing_nodes: list[int]
    """Their groups are not in the list. -1: some groups have no coordinator."""


class GroupClient:
    """What a command may ask."""

    def __init__(self, cluster: "Cluster", *, patience_ms: int = PATIENCE_MS) -> None:
        self._cluster = cluster
        self._patience_ms = patience_ms

    async def operate(self, name: str, **arguments: Any) -> Any:
        """What comes of an operation; asked again where that may help. Raises what it does."""
        return await self._patiently(lambda: self._cluster.operate(f"groups.{name}", arguments))

    async def describe(self, group: str) -> dict[str, Any]:
        """Raises GroupNotFound."""
        try:
            found: dict[str, Any] = await self.operate("describe", group=group)
        except GroupNotFound as error:
            raise GroupNotFound(f"{error}; `streamlog group ls` names those there are") from None
        return found

    async def delete(self, group: str) -> None:
        """Raises GroupNotFound, GroupNotEmpty."""
        asked = 0

        async def ask() -> None:
            nonlocal asked
            asked += 1
            await self._cluster.operate("groups.delete", {"group": group})

        try:
            await self._patiently(ask)
        except GroupNotFound:
            if asked == 1:  # else an earlier request has done it, whose answer was lost
                raise

    async def all(self) -> Listed:
        """By name, each with its coordinator, the partitions that it reads or has committed in, and its lag;
        None of what may not be known. Nodes that do not answer are waited for.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._patience_ms / 1000
        while True:
            listed = await self._list()
            if not listed.missing_nodes or loop.time() >= until_s:
                break
            await asyncio.sleep(0.5)
        free = asyncio.Semaphore(DESCRIBED_AT_ONCE)

        async def detailed(row: dict[str, Any]) -> dict[str, Any] | None:
            nothing = {"coordinator": None, "partitions": None, "lag": None}
            async with free:
                try:
                    found = await self.operate("describe", group=row["group"])
                except GroupNotFound:
                    return None  # it has gone meanwhile
                except NotAuthorized:
                    return {**row, "type": row.get("group_type", CLASSIC), **nothing}
            return {
                "group": row["group"],
                "type": found.get("group_type", CLASSIC),
                "state": found["state"],
                "coordinator": found["coordinator"],
                "members": len(found["members"]),
                "partitions": len(found["partitions"]),
                "lag": found["lag"],
            }

        found = await asyncio.gather(*map(detailed, listed.groups))
        return Listed([it for it in found if it is not None], listed.missing_nodes)

    async def _list(self) -> Listed:
        groups: list[dict[str, Any]] = []
        while True:
            page = await self.operate("list", offset=len(groups), limit=PAGE)
            groups += page["groups"]
            if not page["groups"] or len(groups) >= page["total"]:
                return Listed(groups, page["missing_nodes"])

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        from streamlog.client.cluster import with_retries

        return await with_retries(ask, self._patience_ms)


def ask(servers: str, question: Callable[[GroupClient], Awaitable[T]]) -> T:
    """What ``question`` finds out from the cluster at ``servers``.

    Where no node answers at all it fails at once, and where there is no controller at the first
    node that does not; what comes later is waited for.
    """
    from streamlog.client.cluster import Cluster

    async def asked() -> T:
        async with Cluster.at(
            servers, timeout_ms=TIMEOUT_MS, security=chosen_security()
        ) as cluster:
            await cluster.topology([])
            decided = await has_controller(cluster)
            try:
                return await question(
                    GroupClient(cluster, patience_ms=PATIENCE_MS if decided else 0)
                )
            except RequestTimedOut as error:
                remedy = "`streamlog cluster check` says what is away"
                if not decided:
                    remedy = f"there is no controller: {remedy}"
                raise RequestTimedOut(f"{error}; {remedy}") from error

    return asyncio.run(asked())
