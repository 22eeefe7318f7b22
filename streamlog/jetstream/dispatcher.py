"""From a verb and a body to one reply, by a table of verbs: what answers each, and its body's schema."""

import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from streamlog.authn.session import ANONYMOUS_SESSION
from streamlog.condition import FAULT
from streamlog.control.control import Control
from streamlog.control.operation import Caller
from streamlog.control.service import ControlService
from streamlog.errors import StreamlogError
from streamlog.ingest.admission.publish_headers import API_LEVEL
from streamlog.jetstream.consumers.consumer_service import ConsumerService
from streamlog.jetstream.errors import (
    API_LEVEL_MISSING,
    BAD_REQUEST,
    NOT_EMPTY,
    OVERLOADED,
    ApiError,
    ApiRefused,
    api_error,
)
from streamlog.jetstream.mirroring.mirror_service import MirrorService
from streamlog.jetstream.requests import request_schemas
from streamlog.jetstream.requests.fields import Fields
from streamlog.jetstream.requests.schema import Shape, read_body, read_loosely
from streamlog.jetstream.verbs.account import Account, AccountCounts
from streamlog.jetstream.verbs.cluster import ClusterVerbs
from streamlog.jetstream.verbs.consumers import NOT_SERVED, ConsumerVerbs
from streamlog.jetstream.verbs.messages import MessageVerbs
from streamlog.jetstream.verbs.streams import Streams

# When a request's body is read at all: nats-server has four ways, each verb one of them.


def needed(body: bytes, shape: Shape) -> dict[str, Any]:
    """Some fields must be there. Raises ApiRefused."""
    if is_empty(body):
        raise ApiRefused(BAD_REQUEST)
    return read_body(body, shape)


def optional(body: bytes, shape: Shape) -> dict[str, Any]:
    """What is no JSON object or list is as good as nothing. Raises ApiRefused."""
    return read_body(body, shape) if body.lstrip(b" \t\r\n")[:1] in (b"{", b"[") else {}


def empty(body: bytes, _: Shape) -> dict[str, Any]:
    """Raises ApiRefused for anything but nothing and ``{}``."""
    if not is_empty(body):
        raise ApiRefused(NOT_EMPTY)
    return {}


def ignored(_: bytes, __: Shape) -> dict[str, Any]:
    return {}


loosely = read_loosely
whole = read_body
"""Always read; with no fields where it is empty."""


def is_empty(body: bytes) -> bool:
    if not body:
        return True
    if b'"' in body:  # as any field's name has
        return False
    try:
        return bool(json.loads(body.decode(errors="replace")) == {})
    except (ValueError, RecursionError):
        return False


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
    read: ReadBody = ignored
    first: Callable[[], None] = _nothing
    """Asked before the body is looked at. Raises ApiRefused."""
    with_error: Mapping[str, Any] = MappingProxyType({})
    """What a reply tells even if it is an error."""

    @property
    def reply_type(self) -> str:
        return f"io.nats.jetstream.api.v1.{self.reply}_response"


class Routes:
    """Finds the route of a subject's tokens."""

    def __init__(
        self,
        streams: Streams,
        messages: MessageVerbs,
        cluster: ClusterVerbs,
        consumers: ConsumerVerbs,
        account: Account,
    ) -> None:
        self._plain = _plain(streams, cluster, account)
        self._of_stream = _of_stream(streams, messages, cluster, consumers)
        self._of_consumer = _of_consumer(consumers)

    def find(self, verb: str) -> tuple[Route | None, str]:
        """The route, and the name of the stream where it is about one; after a dot that of a consumer."""
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
                return route, ".".join(rest)
        return None, ""


def _plain(streams: Streams, cluster: ClusterVerbs, account: Account) -> dict[str, Route]:
    shapes = request_schemas
    return {
        "INFO": Route("account_info", account.info),
        "STREAM.NAMES": Route(
            "stream_names",
            streams.names,
            shapes.NAMES,
            optional,
            with_error={**_NO_PAGE, "streams": None},
        ),
        "STREAM.LIST": Route(
            "stream_list",
            streams.list_streams,
            shapes.NAMES,
            optional,
            with_error={**_NO_PAGE, "streams": []},
        ),
        "META.LEADER.STEPDOWN": Route(
            "meta_leader_stepdown",
            cluster.meta_step_down,
            shapes.STEP_DOWN,
            optional,
            cluster.check_clustered,
        ),
    }


def _of_stream(
    streams: Streams, messages: MessageVerbs, cluster: ClusterVerbs, consumers: ConsumerVerbs
) -> dict[str, Route]:
    shapes, config = request_schemas, request_schemas.STREAM_CONFIG
    return {
        "STREAM.CREATE": Route("stream_create", streams.create, config, whole),
        "STREAM.UPDATE": Route("stream_update", streams.update, config, whole),
        "STREAM.INFO": Route(
            "stream_info",
            streams.info,
            shapes.STREAM_INFO,
            optional,
            with_error=_NO_PAGE,
        ),
        "STREAM.DELETE": Route("stream_delete", streams.delete, read=empty),
        "STREAM.PURGE": Route(
            "stream_purge",
            streams.purge,
            shapes.PURGE,
            optional,
            with_error={"purged": 0},
        ),
        "STREAM.MSG.GET": Route("stream_msg_get", messages.get, shapes.MESSAGE, needed),
        "STREAM.MSG.DELETE": Route(
            "stream_msg_delete",
            messages.delete,
            shapes.MESSAGE_DELETE,
            needed,
        ),
        "STREAM.LEADER.STEPDOWN": Route(
            "stream_leader_stepdown",
            cluster.step_down,
            shapes.STEP_DOWN,
            optional,
            cluster.check_clustered,
        ),
        "STREAM.PEER.REMOVE": Route(
            "stream_remove_peer",
            cluster.remove_peer,
            shapes.REMOVE_PEER,
            needed,
            cluster.check_clustered,
        ),
        "CONSUMER.CREATE": Route(
            "consumer_create",
            consumers.create,
            shapes.CONSUMER_CREATE,
            needed,
        ),
        "CONSUMER.NAMES": Route(
            "consumer_names",
            consumers.names,
            shapes.CONSUMERS,
            optional,
            with_error={**_NO_PAGE, "consumers": []},
        ),
        "CONSUMER.LIST": Route(
            "consumer_list",
            consumers.list_consumers,
            shapes.CONSUMERS,
            optional,
            with_error={**_NO_PAGE, "consumers": []},
        ),
    }


def _of_consumer(consumers: ConsumerVerbs) -> dict[str, Route]:
    shapes = request_schemas
    return {
        "CONSUMER.CREATE": Route(
            "consumer_create",
            consumers.create,
            shapes.CONSUMER_CREATE,
            needed,
        ),
        "CONSUMER.DURABLE.CREATE": Route(
            "consumer_create",
            consumers.create_durable,
            shapes.CONSUMER_CREATE,
            needed,
        ),
        "CONSUMER.INFO": Route("consumer_info", consumers.info, read=empty),
        "CONSUMER.DELETE": Route("consumer_delete", consumers.delete, read=empty),
        "CONSUMER.PAUSE": Route("consumer_pause", consumers.pause, shapes.PAUSE, optional),
        "CONSUMER.UNPIN": Route("consumer_unpin", consumers.unpin, shapes.UNPIN, loosely),
        "CONSUMER.RESET": Route("consumer_reset", consumers.reset, shapes.RESET, loosely),
    }


logger = logging.getLogger(__name__)

SYSTEM_REPLY_TYPE: Final = "io.nats.jetstream.api.v1.system_response"
LEVEL_HEADER: Final = "Nats-Required-Api-Level"


CALLERS_KEPT_MAX: Final = 1_000
"""What is kept for one is a few KiB."""
ANYBODY: Final = Caller(ANONYMOUS_SESSION, by="NATS")
"""Where no client has to say who it is."""


class RequestDispatcher:
    """Answers; counts what it answers."""

    def __init__(
        self,
        service: ControlService,
        *,
        domain: str,
        now_ms: Callable[[], int],
        consumers: ConsumerService | None = None,
        mirrors: MirrorService | None = None,
        caller: Caller = ANYBODY,
        for_all: "RequestDispatcher | None" = None,
    ) -> None:
        """``consumers`` None: they are not served at this node; ``for_all``: the dispatcher that this one is as
        one caller sees it.
        """
        self._consumers, self._mirrors = consumers, mirrors
        self.consumers = ConsumerVerbs(Control(service, caller), consumers)
        self._service, self._domain, self._now_ms = service, domain, now_ms
        self.caller = caller
        self._of_callers = OrderedDict[Caller, RequestDispatcher]()
        """The last asked for last."""
        self._counts: AccountCounts = AccountCounts() if for_all is None else for_all._counts
        self.control = Control(service, caller)
        streams = Streams(
            self.control,
            service.leaders,
            domain=domain,
            now_ms=now_ms,
            consumers=consumers,
            mirrors=mirrors,
            for_all=None if for_all is None else for_all._streams,
        )
        self._streams: Streams = streams
        self.streams = streams
        account = Account(self.control, service.leaders, domain, self._counts)
        self._routes = Routes(
            streams,
            MessageVerbs(self.control),
            ClusterVerbs(self.control),
            self.consumers,
            account,
        )

    def of(self, caller: Caller) -> "RequestDispatcher":
        """For one caller. It is kept for the next request: to make one takes longer than to answer."""
        if caller == self.caller:
            return self
        kept = self._of_callers
        found = kept.get(caller)
        if found is None:
            found = kept[caller] = RequestDispatcher(
                self._service,
                domain=self._domain,
                now_ms=self._now_ms,
                consumers=self._consumers,
                mirrors=self._mirrors,
                caller=caller,
                for_all=self,
            )
            if len(kept) > CALLERS_KEPT_MAX:
                kept.popitem(last=False)
        kept.move_to_end(caller)
        return found

    async def reply(self, verb: str, body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
        """Never raises what a request may be the reason of."""
        self._counts.requests += 1
        route, name = self._routes.find(verb)
        if route is None:
            self._counts.errors += 1
            return {"type": SYSTEM_REPLY_TYPE, "error": BAD_REQUEST.json()}
        try:
            route.first()
            if not has_api_level(headers):
                raise ApiRefused(API_LEVEL_MISSING)
            result = await route.handler(name, route.read(body, route.shape))
        except Exception as error:
            told = {"type": route.reply_type, "error": self.failed(error, verb).json()}
            return {**told, **route.with_error}
        return {"type": route.reply_type, **result}

    async def not_served(self, verb: str) -> dict[str, Any]:
        """The reply to a client that asks for a consumer, and that what it delivers cannot reach."""
        _, name = self._routes.find(verb)
        try:
            await self.consumers.check(name)
            error = NOT_SERVED
        except Exception as found:
            error = self.failed(found, verb)
        return {**self.overloaded(verb), "error": error.json()}

    def overloaded(self, verb: str) -> dict[str, Any]:
        """The reply to a request that there is no room for."""
        self._counts.requests += 1
        self._counts.errors += 1
        route, _ = self._routes.find(verb)
        kind = SYSTEM_REPLY_TYPE if route is None else route.reply_type
        return {"type": kind, "error": OVERLOADED.json()}

    def count(self) -> None:
        """A request that is answered elsewhere."""
        self._counts.requests += 1

    def failed(self, error: Exception, verb: str) -> ApiError:
        """What is told of ``error``; an unexpected one is logged, too."""
        self._counts.errors += 1
        if not isinstance(error, ApiRefused | StreamlogError):
            logger.error(
                FAULT.logged_as("management request failed"), extra={"verb": verb}, exc_info=error
            )
        return api_error(error)


def has_api_level(headers: Mapping[str, str]) -> bool:
    """Whether what the request asks for is no more than there is."""
    wanted = headers.get(LEVEL_HEADER)
    if not wanted:
        return True
    try:
        return int(wanted) <= API_LEVEL
    except ValueError:
        return False
