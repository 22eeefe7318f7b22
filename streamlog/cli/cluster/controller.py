"""What the command line asks of the controller, through whichever node answers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from streamlog.cli.cluster.description import Description, without_controller
from streamlog.cli.options.connection_options import chosen_security
from streamlog.errors import NoController, StreamlogError

if TYPE_CHECKING:
    from streamlog.client.cluster import Cluster
    from streamlog.client.topology import Topology

ADDRESSES_MAX: Final = 1_000
"""Of nodes that others name: a node that answers could name further ones for ever."""
LOCAL_MS: Final = 2_000
"""How long one node is waited for that is asked what it knows itself."""

LOCAL: Final = {"local": True}
"""What a node knows itself."""

T = TypeVar("T")


class Controller:
    """A node hands on what it is asked; with no controller it says so after some seconds."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster

    async def operate(self, name: str, *, timeout_ms: int | None = None, **arguments: Any) -> Any:
        """What comes of an operation of ``control``. Raises what that does, and NoController."""
        return await self._cluster.operate(name, arguments, timeout_ms=timeout_ms)

    async def describe(self) -> Description:
        """Quorum and nodes as the controller knows them; without one, as those nodes do that
        answer, each for itself. Raises NoController where none does.
        """
        try:
            return Description.of(await self.operate("cluster.describe"))
        except NoController as error:
            return await self.describe_without_controller(str(error))

    async def describe_without_controller(self, why: str = "there is no controller") -> Description:
        """As those nodes describe the cluster that answer, each for itself. Raises NoController
        where none does.
        """
        told = await self._tell_themselves()
        if not told:
            raise NoController(why)
        return without_controller(told)

    async def _tell_themselves(self) -> list[dict[str, Any]]:
        """What each node answers of itself that can be reached, by the addresses of all of them."""
        told: dict[int, dict[str, Any]] = {}
        asked = set[tuple[str, int]]()

        async def ask(host: str, port: int) -> dict[str, Any] | None:
            try:
                found = await self._cluster.operate_at(
                    host, port, "cluster.describe", LOCAL, timeout_ms=LOCAL_MS
                )
            except StreamlogError:
                return None
            return dict(found)

        wanted = self._cluster.addresses
        while wanted:
            asked.update(wanted)
            found = await asyncio.gather(*(ask(*address) for address in wanted))
            for answer in found:
                if answer is not None:
                    told[answer["node"]] = answer
            places = {
                (it["host"], it["port"])
                for answer in told.values()
                for it in (*answer["voters"], *answer["nodes"])
            }
            wanted = sorted(places - asked)[: ADDRESSES_MAX - len(asked)]
        return list(told.values())

    async def topology(self) -> "Topology":
        """Streams, and who leads them, as a node tells Kafka clients."""
        return await self._cluster.topology()

    async def has_controller(self) -> bool:
        """As the node knows that answers first."""
        return await has_controller(self._cluster)


async def has_controller(cluster: "Cluster") -> bool:
    """As the node knows that answers first. Kafka's Metadata names a node where there is none, for
    clients send their requests somewhere; a client that may not ask assumes that there is one.
    """
    try:
        found = await cluster.operate("cluster.describe", LOCAL)
    except StreamlogError:
        return True
    return found["controller"] is not None


def ask(servers: str, question: Callable[[Controller], Awaitable[T]]) -> T:
    """What ``question`` finds out from the cluster at ``servers``."""
    from streamlog.client.cluster import Cluster

    async def asked() -> T:
        async with Cluster.at(servers, security=chosen_security()) as cluster:
            return await question(Controller(cluster))

    return asyncio.run(asked())
