"""The service: requests of JetStream's API in, one JSON reply to each."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from streamlog.admin.errors import (
    API_LEVEL,
    BAD_REQUEST,
    ApiError,
    Refused,
    api_error,
    invalid_json,
)
from streamlog.admin.messages import StoredMessage
from streamlog.admin.stream_info import rfc3339
from streamlog.admin.streams import Metadata, Partitions, Streams
from streamlog.config import NatsSection
from streamlog.errors import StreamlogError
from streamlog.ingest.servers import connect_options
from streamlog.model import NodeId

logger = logging.getLogger(__name__)

DEFAULT_PREFIX: Final = "$JS.API."
QUEUE_GROUP: Final = "streamlog-admin"
REQUESTS_MAX: Final = 64
"""Answered at once; more wait in the connection's own bounded queue."""
OUR_API_LEVEL: Final = 0
"""Of what JetStream counts from 2.11 on we have nothing; clients then do not ask for it."""
DRAIN_TIMEOUT_S: Final = 5.0

Handler = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]


class Route(NamedTuple):
    """A verb: what answers it, and the type that its replies carry."""

    reply: str
    handler: Handler

    @property
    def reply_type(self) -> str:
        return f"io.nats.jetstream.api.v1.{self.reply}_response"


SYSTEM_REPLY_TYPE: Final = "io.nats.jetstream.api.v1.system_response"


class ManagementApi:
    """Answers for as long as ``run`` runs; waits for a NATS that is not there."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        nats: NatsSection,
        metadata: Metadata,
        partitions: Partitions,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._options = connect_options(nats, name=f"streamlog node {node_id} admin")
        self._domain = nats.domain
        self._metadata = metadata
        self._streams = Streams(metadata, partitions, domain=nats.domain, now_ms=now_ms)
        self._prefixes = [f"$JS.{nats.domain}.API."]
        if nats.default_api_prefix:
            self._prefixes.append(DEFAULT_PREFIX)
        self._client = Client()
        self._stopped = asyncio.Event()
        self._closed = asyncio.Event()
        self._slots = asyncio.Semaphore(REQUESTS_MAX)
        self._requests: asyncio.TaskGroup | None = None
        self.is_ready = False
        """Requests are listened for, or will be as soon as NATS is back."""
        self._count = 0
        self._error_count = 0
        streams = self._streams
        self._routes = {
            "STREAM.NAMES": Route("stream_names", streams.names),
            "STREAM.LIST": Route("stream_list", streams.list_streams),
            "INFO": Route("account_info", self._account),
        }
        self._named_routes = {
            "STREAM.CREATE": Route("stream_create", streams.create),
            "STREAM.UPDATE": Route("stream_update", streams.update),
            "STREAM.INFO": Route("stream_info", streams.info),
            "STREAM.DELETE": Route("stream_delete", streams.delete),
            "STREAM.PURGE": Route("stream_purge", streams.purge),
            "STREAM.MSG.GET": Route("stream_msg_get", streams.message),
        }

    async def run(self) -> None:
        """Answer requests until ``stop``."""
        async with asyncio.TaskGroup() as group:
            self._requests = group
            connecting = group.create_task(self._stay_connected())
            await self._stopped.wait()
            connecting.cancel()

    async def stop(self) -> None:
        """Take no more requests, answer those that are here, close."""
        client = self._client
        if client.is_connected:
            for subscription in list(client._subs.values()):
                await subscription.unsubscribe()
            await client.flush()
        for _ in range(REQUESTS_MAX):
            await self._slots.acquire()
        self._stopped.set()
        await client.close()

    async def _stay_connected(self) -> None:
        while True:
            self._closed.clear()
            try:
                await self._listen(self._client)
                await self._closed.wait()
            except Exception:
                logger.exception("connecting to NATS failed")
                await self._client.close()
                await asyncio.sleep(self._options["reconnect_time_wait"])
            self._client = Client()

    async def _listen(self, client: Client) -> None:
        await client.connect(**self._options, error_cb=self._failed, closed_cb=self._client_closed)
        for prefix in self._prefixes:
            await client.subscribe(f"{prefix}>", queue=QUEUE_GROUP, cb=self._received)
        await client.flush()
        self.is_ready = True
        logger.info("management API ready", extra={"prefixes": self._prefixes})

    async def _received(self, message: Msg) -> None:
        """Called by nats-py, one message at a time; answered side by side."""
        assert self._requests is not None, "run has begun"
        if message.reply:
            await self._slots.acquire()
            self._requests.create_task(self._answer(message))

    async def _answer(self, message: Msg) -> None:
        try:
            verb = self._verb(message.subject)
            if verb.startswith("DIRECT.GET."):
                await self._answer_direct(message, verb.removeprefix("DIRECT.GET."))
            else:
                reply = await self._reply(verb, message.data, message.headers or {})
                await self._respond(message, reply)
        except nats.errors.Error as error:
            logger.warning("a management reply was not sent", extra={"error": str(error)})
        except Exception:
            logger.exception("a management request was not answered")
        finally:
            self._slots.release()

    async def _respond(self, message: Msg, reply: dict[str, Any]) -> None:
        data = json.dumps(reply).encode()
        if len(data) > self._client.max_payload:
            error = ApiError(500, 10051, "the reply is larger than NATS lets through")
            data = json.dumps({"type": reply["type"], "error": error.json()}).encode()
        await message.respond(data)

    async def _reply(self, verb: str, body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
        self._count += 1
        route, name = self._route(verb)
        if route is None:
            self._error_count += 1
            return {"type": SYSTEM_REPLY_TYPE, "error": BAD_REQUEST.json()}
        try:
            _check_api_level(headers)
            result = await route.handler(name, parse_body(body))
        except Exception as error:
            self._failed_request(error, verb)
            return {"type": route.reply_type, "error": api_error(error).json()}
        return {"type": route.reply_type, **result}

    def _failed_request(self, error: Exception, verb: str) -> None:
        self._error_count += 1
        if not isinstance(error, Refused | StreamlogError):
            logger.error("management request failed", extra={"verb": verb}, exc_info=error)

    async def _answer_direct(self, message: Msg, rest: str) -> None:
        """DIRECT.GET: the message itself, or a status; ``rest`` is a stream, or stream.subject."""
        name, _, subject = rest.partition(".")
        self._count += 1
        try:
            fields = {"last_by_subj": subject} if subject else parse_body(message.data)
            found = await self._streams.find_message(name, fields)
        except Exception as error:
            self._failed_request(error, message.subject)
            answer = api_error(error)
            status = {"Status": str(answer.code), "Description": answer.description}
            await self._client.publish(message.reply, b"", headers=status)
            return
        await self._client.publish(message.reply, found.data, headers=direct_headers(name, found))

    async def _account(self, _: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """No accounts, no quotas: what is used is not limited."""
        return {
            "memory": 0,
            "storage": self._streams.size_bytes(),
            "reserved_memory": 0,
            "reserved_storage": 0,
            "streams": len(self._metadata.image.streams),
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

    def _verb(self, subject: str) -> str:
        prefix = next(prefix for prefix in self._prefixes if subject.startswith(prefix))
        return subject[len(prefix) :]

    def _route(self, verb: str) -> tuple[Route | None, str]:
        """The route, and the name of the stream where it is about one."""
        if verb in self._routes:
            return self._routes[verb], ""
        verb, _, name = verb.rpartition(".")
        return self._named_routes.get(verb), name

    async def _failed(self, error: Exception) -> None:
        """``ingest`` tells of a NATS that is not there; once is enough."""
        logger.debug("NATS connection of the management API", extra={"error": str(error)})

    async def _client_closed(self) -> None:
        self._closed.set()


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


def direct_headers(stream: str, message: StoredMessage) -> dict[str, str]:
    """The message's own headers, and where it is from."""
    headers: dict[str, str] = {}
    for line in message.header_block.split(b"\r\n")[1:]:
        name, colon, value = line.decode(errors="replace").partition(":")
        if colon:
            headers[name] = value.strip()
    return {
        **headers,
        "Nats-Stream": stream,
        "Nats-Subject": message.subject,
        "Nats-Sequence": str(message.sequence),
        "Nats-Time-Stamp": rfc3339(message.timestamp_ms),
    }


def _check_api_level(headers: Mapping[str, str]) -> None:
    wanted = headers.get("Nats-Required-Api-Level")
    if wanted is not None and not (wanted.isdigit() and int(wanted) <= OUR_API_LEVEL):
        raise Refused(API_LEVEL)
