"""CONSUMER.*: the verbs about consumers, as one caller may use them. A request's fields in; a reply's fields, or
errors, out. What they do is ``consumers.consumer_service``'s.
"""

from typing import Any, Final

from streamlog.control.control import Control
from streamlog.errors import StreamlogError
from streamlog.jetstream.consumers.consumer_coordinator import HostedConsumer
from streamlog.jetstream.consumers.consumer_service import ConsumerRequest, ConsumerService
from streamlog.jetstream.errors import BAD_REQUEST, CONSUMER_NOT_FOUND, ApiRefused, no_consumer
from streamlog.jetstream.requests.fields import Fields
from streamlog.metadata.image.metadata_image import StreamImage

NOT_SERVED: Final = no_consumer(
    "a node that is only a client of NATS serves no consumers: have nats.servers name a leafnode port, nats-leaf://, "
    "or have clients connect to the node's own NATS port"
)


class ConsumerVerbs:
    """Every method is one verb. ``name``: the stream's, and after a dot the consumer's."""

    def __init__(self, control: Control, service: ConsumerService | None) -> None:
        """``service`` None: what consumers deliver could not reach any client of this node."""
        self._control = control
        self._service = service

    async def create(self, name: str, fields: Fields) -> dict[str, Any]:
        return await self._create("CREATE", name, fields)

    async def create_durable(self, name: str, fields: Fields) -> dict[str, Any]:
        return await self._create("DURABLE.CREATE", name, fields)

    async def info(self, name: str, _: Fields) -> dict[str, Any]:
        return await self._ask("INFO", name)

    async def delete(self, name: str, _: Fields) -> dict[str, Any]:
        return await self._ask("DELETE", name)

    async def pause(self, name: str, fields: Fields) -> dict[str, Any]:
        return await self._ask("PAUSE", name, fields)

    async def unpin(self, name: str, fields: Fields) -> dict[str, Any]:
        return await self._ask("UNPIN", name, fields)

    async def reset(self, name: str, fields: Fields) -> dict[str, Any]:
        return await self._ask("RESET", name, fields)

    async def names(self, name: str, fields: Fields) -> dict[str, Any]:
        return await self._ask("NAMES", name, fields)

    async def list_consumers(self, name: str, fields: Fields) -> dict[str, Any]:
        return await self._ask("LIST", name, fields)

    async def next(self, name: str, inbox: str, body: bytes) -> None:
        """MSG.NEXT: messages go to ``inbox``. Raises ApiRefused, StreamlogError."""
        await self._ask("NEXT", name, inbox=inbox, body=body.decode(errors="replace"))

    def hosted_here(self, name: str) -> HostedConsumer | None:
        """The consumer of a MSG.NEXT that this node coordinates. None: answer it by ``next``, also where it is
        refused.
        """
        stream_name, _, consumer = name.partition(".")
        if self._service is None:
            return None
        try:
            stream = self._control.messages.known_readable(stream_name)
        except StreamlogError:
            return None
        return self._service.hosted_here(stream, consumer)

    async def check(self, name: str) -> None:
        """Raises TopicForbidden, StreamNotFound, ApiRefused."""
        await self._stream(name.partition(".")[0])

    async def _create(self, verb: str, name: str, fields: Fields) -> dict[str, Any]:
        if self._service is None:
            await self._stream(name.partition(".")[0])
            raise ApiRefused(NOT_SERVED)
        return await self._ask(verb, name, fields)

    async def _ask(
        self, verb: str, name: str, fields: Fields | None = None, **more: str
    ) -> dict[str, Any]:
        stream_name, _, rest = name.partition(".")
        consumer, _, subject = rest.partition(".")
        stream = await self._stream(stream_name)
        request = ConsumerRequest(
            verb, stream_name, stream.stream_id, consumer, subject, fields or {}, **more
        )
        if self._service is not None:
            return await self._service.ask(request)
        if verb in ("NAMES", "LIST"):
            return {"total": 0, "offset": 0, "limit": 0, "consumers": []}
        raise ApiRefused(CONSUMER_NOT_FOUND)

    async def _stream(self, name: str) -> StreamImage:
        """Of which the caller may read the messages. Raises TopicForbidden, StreamNotFound."""
        if not name:
            raise ApiRefused(BAD_REQUEST)
        stream = await self._control.streams.find(name)
        await self._control.messages.readable(name)
        return stream
