"""From a verb and a body to one reply; the table of all verbs."""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from streamlog.admin.cluster import Cluster
from streamlog.admin.errors import (
    API_LEVEL,
    BAD_REQUEST,
    ApiError,
    Refused,
    api_error,
    invalid_json,
)
from streamlog.admin.leaders import Leaders
from streamlog.admin.messages import StoredMessage
from streamlog.admin.streams import Metadata, Streams
from streamlog.errors import StreamlogError, StreamNotFound
from streamlog.metadata.stream import INTERNAL_STREAMS, is_internal

logger = logging.getLogger(__name__)

OUR_API_LEVEL: Final = 0
"""Of what JetStream counts from 2.11 on we have nothing; clients then do not ask for it."""
SYSTEM_REPLY_TYPE: Final = "io.nats.jetstream.api.v1.system_response"

Handler = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]


class Route(NamedTuple):
    """A verb: what answers it, and the type that its replies carry."""

    reply: str
    handler: Handler

    @property
    def reply_type(self) -> str:
        return f"io.nats.jetstream.api.v1.{self.reply}_response"


class Verbs:
    """Answers; counts what it answers."""

    def __init__(
        self, metadata: Metadata, leaders: Leaders, *, domain: str, now_ms: Callable[[], int]
    ) -> None:
        self._metadata = metadata
        self._leaders = leaders
        self._domain = domain
        self._count = 0
        self._error_count = 0
        self._streams = streams = Streams(metadata, leaders, domain=domain, now_ms=now_ms)
        cluster = Cluster(metadata, streams)
        self._routes = {
            "STREAM.NAMES": Route("stream_names", streams.names),
            "STREAM.LIST": Route("stream_list", streams.list_streams),
            "META.LEADER.STEPDOWN": Route("meta_leader_stepdown", cluster.meta_step_down),
            "INFO": Route("account_info", self._account),
        }
        self._named_routes = {
            "STREAM.CREATE": Route("stream_create", streams.create),
            "STREAM.UPDATE": Route("stream_update", streams.update),
            "STREAM.INFO": Route("stream_info", streams.info),
            "STREAM.DELETE": Route("stream_delete", streams.delete),
            "STREAM.PURGE": Route("stream_purge", streams.purge),
            "STREAM.MSG.GET": Route("stream_msg_get", streams.message),
            "STREAM.LEADER.STEPDOWN": Route("stream_leader_stepdown", cluster.step_down),
            "STREAM.PEER.REMOVE": Route("stream_remove_peer", cluster.remove_peer),
        }

    async def reply(self, verb: str, body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
        """Never raises what a request may be the reason of."""
        self._count += 1
        route, name = self._route(verb)
        if route is None:
            self._error_count += 1
            return {"type": SYSTEM_REPLY_TYPE, "error": BAD_REQUEST.json()}
        try:
            _check_api_level(headers)
            _check_name(name)
            result = await route.handler(name, parse_body(body))
        except Exception as error:
            return {"type": route.reply_type, "error": self._failed(error, verb).json()}
        return {"type": route.reply_type, **result}

    async def direct(self, rest: str, body: bytes) -> tuple[str, StoredMessage]:
        """DIRECT.GET: ``rest`` is a stream, or stream.subject. Raises Refused."""
        name, _, subject = rest.partition(".")
        self._count += 1
        try:
            _check_name(name)
            fields = {"last_by_subj": subject} if subject else parse_body(body)
            return name, await self._streams.find_message(name, fields)
        except Exception as error:
            raise Refused(self._failed(error, f"DIRECT.GET.{rest}")) from error

    def _failed(self, error: Exception, verb: str) -> ApiError:
        self._error_count += 1
        if not isinstance(error, Refused | StreamlogError):
            logger.error("management request failed", extra={"verb": verb}, exc_info=error)
        return api_error(error)

    def _route(self, verb: str) -> tuple[Route | None, str]:
        """The route, and the name of the stream where it is about one."""
        if verb in self._routes:
            return self._routes[verb], ""
        verb, _, name = verb.rpartition(".")
        return self._named_routes.get(verb), name

    async def _account(self, _: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """No accounts, no quotas: what is used is not limited."""
        return {
            "memory": 0,
            "storage": await self._leaders.size_bytes(),
            "reserved_memory": 0,
            "reserved_storage": 0,
            "streams": len(set(self._metadata.image.streams) - INTERNAL_STREAMS),
            "consumers": 0,
            "limits": {
                "max_memory": 0,
                "max_storage": -1,
                "max_streams": -1,
                "max_consumers": 0,
                "max_ack_pending": -1,
                "memory_max_stream_bytes": -1,
                "storage_max_stream_bytes": -1,
                "max_bytes_required": False,
            },
            "domain": self._domain,
            "api": {"level": OUR_API_LEVEL, "total": self._count, "errors": self._error_count},
        }


def parse_body(body: bytes) -> dict[str, Any]:
    """A JSON object; an empty body is an empty one."""
    if not body.strip():
        return {}
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(invalid_json(str(error))) from None
    if not isinstance(value, dict):
        raise Refused(invalid_json("not an object"))
    return value


def _check_name(name: str) -> None:
    """What is no business of NATS is not there."""
    if is_internal(name):
        raise StreamNotFound(f"{name!r} is an internal stream")


def _check_api_level(headers: Mapping[str, str]) -> None:
    wanted = headers.get("Nats-Required-Api-Level")
    if wanted is not None and not (wanted.isdigit() and int(wanted) <= OUR_API_LEVEL):
        raise Refused(API_LEVEL)
