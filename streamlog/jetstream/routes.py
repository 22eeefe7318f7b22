"""The table of verbs: what answers each, the type of its replies, and what its body is."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from streamlog.jetstream.requests import request_bodies, request_schemas
from streamlog.jetstream.requests.fields import Fields
from streamlog.jetstream.requests.schema import Shape
from streamlog.jetstream.verbs.account import Account
from streamlog.jetstream.verbs.cluster import ClusterVerbs
from streamlog.jetstream.verbs.consumers import Consumers
from streamlog.jetstream.verbs.streams import Streams

Handler = Callable[[str, Fields], Awaitable[dict[str, Any]]]
ReadBody = Callable[[bytes, Shape], dict[str, Any]]


_NO_PAGE: Final[Mapping[str, Any]] = MappingProxyType({"total": 0, "offset": 0, "limit": 0})


def _nothing() -> None:
    pass


class Route(NamedTuple):
    """A verb."""

    reply: str
    handler: Handler
    shape: Shape = request_schemas.NOTHING
    read: ReadBody = request_bodies.ignored
    first: Callable[[], None] = _nothing
    """Asked before the body is looked at. Raises Refused."""
    with_error: Mapping[str, Any] = MappingProxyType({})
    """What a reply tells even if it is an error."""

    @property
    def reply_type(self) -> str:
        return f"io.nats.jetstream.api.v1.{self.reply}_response"


class Routes:
    """Finds the route of a subject's tokens."""

    def __init__(
        self, streams: Streams, cluster: ClusterVerbs, consumers: Consumers, account: Account
    ) -> None:
        self._plain = _plain(streams, cluster, account)
        self._of_stream = _of_stream(streams, cluster, consumers)
        self._of_consumer = _of_consumer(consumers)

    def find(self, verb: str) -> tuple[Route | None, str]:
        """The route, and the name of the stream where it is about one."""
        if verb in self._plain:
            return self._plain[verb], ""
        head, _, name = verb.rpartition(".")
        if head in self._of_stream and name:
            return self._of_stream[head], name
        return self._find_consumer(verb.split("."))

    def _find_consumer(self, tokens: list[str]) -> tuple[Route | None, str]:
        """CONSUMER.<verb>.<stream>.<consumer>, and CREATE with a filter after it."""
        if tokens[0] != "CONSUMER":
            return None, ""
        for size in (2, 3):
            route, rest = self._of_consumer.get(".".join(tokens[:size])), tokens[size:]
            exact = len(rest) == 2 or (tokens[1] == "CREATE" and len(rest) > 2)
            if route is not None and exact and all(rest):
                return route, rest[0]
        return None, ""


def _plain(streams: Streams, cluster: ClusterVerbs, account: Account) -> dict[str, Route]:
    shapes = request_schemas
    return {
        "INFO": Route("account_info", account.info),
        "STREAM.NAMES": Route(
            "stream_names",
            streams.names,
            shapes.NAMES,
            request_bodies.optional,
            with_error={**_NO_PAGE, "streams": None},
        ),
        "STREAM.LIST": Route(
            "stream_list",
            streams.list_streams,
            shapes.NAMES,
            request_bodies.optional,
            with_error={**_NO_PAGE, "streams": []},
        ),
        "META.LEADER.STEPDOWN": Route(
            "meta_leader_stepdown",
            cluster.meta_step_down,
            shapes.STEP_DOWN,
            request_bodies.optional,
            cluster.check_clustered,
        ),
    }


def _of_stream(streams: Streams, cluster: ClusterVerbs, consumers: Consumers) -> dict[str, Route]:
    shapes, config = request_schemas, request_schemas.STREAM_CONFIG
    return {
        "STREAM.CREATE": Route("stream_create", streams.create, config, request_bodies.whole),
        "STREAM.UPDATE": Route("stream_update", streams.update, config, request_bodies.whole),
        "STREAM.INFO": Route(
            "stream_info",
            streams.info,
            shapes.STREAM_INFO,
            request_bodies.optional,
            with_error=_NO_PAGE,
        ),
        "STREAM.DELETE": Route("stream_delete", streams.delete, read=request_bodies.empty),
        "STREAM.PURGE": Route(
            "stream_purge",
            streams.purge,
            shapes.PURGE,
            request_bodies.optional,
            with_error={"purged": 0},
        ),
        "STREAM.MSG.GET": Route(
            "stream_msg_get", streams.message, shapes.MESSAGE, request_bodies.needed
        ),
        "STREAM.MSG.DELETE": Route(
            "stream_msg_delete",
            streams.delete_message,
            shapes.MESSAGE_DELETE,
            request_bodies.needed,
        ),
        "STREAM.LEADER.STEPDOWN": Route(
            "stream_leader_stepdown",
            cluster.step_down,
            shapes.STEP_DOWN,
            request_bodies.optional,
            cluster.check_clustered,
        ),
        "STREAM.PEER.REMOVE": Route(
            "stream_remove_peer",
            cluster.remove_peer,
            shapes.REMOVE_PEER,
            request_bodies.needed,
            cluster.check_clustered,
        ),
        "CONSUMER.CREATE": Route("consumer_create", consumers.create),
        "CONSUMER.NAMES": Route(
            "consumer_names",
            consumers.names,
            shapes.CONSUMERS,
            request_bodies.optional,
            with_error={**_NO_PAGE, "consumers": []},
        ),
        "CONSUMER.LIST": Route(
            "consumer_list",
            consumers.list_consumers,
            shapes.CONSUMERS,
            request_bodies.optional,
            with_error={**_NO_PAGE, "consumers": []},
        ),
    }


def _of_consumer(consumers: Consumers) -> dict[str, Route]:
    return {
        "CONSUMER.CREATE": Route("consumer_create", consumers.create),
        "CONSUMER.DURABLE.CREATE": Route("consumer_create", consumers.create),
        "CONSUMER.INFO": Route("consumer_info", consumers.one),
        "CONSUMER.DELETE": Route("consumer_delete", consumers.one, read=request_bodies.empty),
        "CONSUMER.PAUSE": Route("consumer_pause", consumers.one),
    }
