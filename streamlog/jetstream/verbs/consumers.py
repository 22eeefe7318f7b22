"""The verbs about consumers: there are none, and none can be made.

A client's connection may not publish what a consumer delivers (its replies begin with ``$JS.ACK``,
which nats-server refuses from clients), so that a consumer could be described, but never read.
"""

from typing import Any, Final

from streamlog.jetstream.errors import CONSUMER_NOT_FOUND, ApiRefused, no_consumer
from streamlog.jetstream.requests.fields import Fields
from streamlog.jetstream.verbs.streams import Streams

NAMES_MAX: Final = 1024
LIST_MAX: Final = 256
NOT_SERVED: Final = no_consumer(
    "streamlog serves no JetStream consumers; any Kafka client reads the stream"
)


class Consumers:
    """Every method is one verb."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    async def create(self, name: str, _: Fields) -> dict[str, Any]:
        await self._streams.stream(name)
        raise ApiRefused(NOT_SERVED)

    async def one(self, name: str, _: Fields) -> dict[str, Any]:
        """INFO, DELETE, PAUSE: of one that is not there."""
        await self._streams.stream(name)
        raise ApiRefused(CONSUMER_NOT_FOUND)

    async def names(self, name: str, _: Fields) -> dict[str, Any]:
        await self._streams.stream(name)
        return {"total": 0, "offset": 0, "limit": NAMES_MAX, "consumers": []}

    async def list_consumers(self, name: str, _: Fields) -> dict[str, Any]:
        await self._streams.stream(name)
        return {"total": 0, "offset": 0, "limit": LIST_MAX, "consumers": []}
