"""The other side of the API: what the command line asks with. Raises errors of streamlog."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

import nats.errors
from nats.aio.client import Client

from streamlog.authz.signature import KEY, sign
from streamlog.clock import wall_ms
from streamlog.errors import CorruptData, NodeUnreachable, RequestTimedOut
from streamlog.ingest.nats.options import NatsOptions
from streamlog.jetstream.auth.signed_request import ask
from streamlog.jetstream.errors import streamlog_error
from streamlog.jetstream.verbs.stream_config import AUTO_PAUSED, config_from_json, config_to_json
from streamlog.metadata.stream.config import StreamConfig
from streamlog.metadata.stream.settings_table import JETSTREAM_FIELDS
from streamlog.nats_tools.connect import Nats, connect_once, section_of

TIMEOUT_S = 5.0
LISTED_MAX: Final = 1_000_000
"""Streams in one list: a server could go on telling of others for ever."""
_EMPTY_STREAM_YEAR = 1
_NOT_THAT: Final = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""What JSON of other shapes than wanted leads to."""


@dataclass(frozen=True, slots=True)
class ReplicaDetails:
    """A follower of a stream's first partition."""

    name: str
    current: bool
    """It is in sync."""
    offline: bool
    lag: int
    """Records behind; 0 also where the leader could not be asked."""


@dataclass(frozen=True, slots=True)
class StreamDetails:
    """A stream as a node describes it."""

    config: StreamConfig
    created: datetime
    messages: int
    size_bytes: int
    first_sequence: int
    last_sequence: int
    first_time: datetime | None
    last_time: datetime | None
    leader: str | None
    did_create: bool = False
    """False also where a stream of that configuration was there already."""
    replicas: tuple[ReplicaDetails, ...] = ()
    auto_paused: bool = False
    """No message came for ``auto_pause_ms``."""


class ManagementClient:
    """``async with ManagementClient(url) as management: await management.create(config)``."""

    def __init__(
        self,
        nats: Nats,
        *,
        domain: str = "streamlog",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._nats = nats
        self._domain = domain
        self._prefix = f"$JS.{domain}.API."
        self._timeout_s = timeout_s
        self._client = Client()

    async def __aenter__(self) -> Self:
        self._client = await connect_once(self._nats, timeout_s=self._timeout_s)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def create(self, config: StreamConfig) -> StreamDetails:
        """Raises StreamExists, InvalidStreamConfig, ..."""
        reply = await self._request(f"STREAM.CREATE.{config.name}", config_to_json(config))
        return stream_details(reply)

    async def update(self, config: StreamConfig) -> StreamDetails:
        """The whole configuration, replaced; see ``StreamConfig.changed``."""
        reply = await self._request(f"STREAM.UPDATE.{config.name}", config_to_json(config))
        return stream_details(reply)

    async def info(self, name: str) -> StreamDetails:
        """Raises StreamNotFound."""
        return stream_details(await self._request(f"STREAM.INFO.{name}"))

    async def list(self) -> list[StreamDetails]:
        """All streams, by name. Raises CorruptData."""
        found: list[StreamDetails] = []
        while True:
            reply = await self._request("STREAM.LIST", {"offset": len(found)})
            try:
                page, total = list(reply["streams"]), int(reply["total"])
            except _NOT_THAT as error:
                raise CorruptData(f"not a list of streams: {error!r}") from None
            found.extend(map(stream_details, page))
            if not page or len(found) >= total:
                return found
            if len(found) > LISTED_MAX:
                raise CorruptData(f"more than {LISTED_MAX} streams are told of")

    async def purge(
        self, name: str, *, before_sequence: int | None = None, keep: int | None = None
    ) -> int:
        """Drop all records, those before a sequence, or all but the last ``keep``; how many."""
        fields = {"seq": before_sequence, "keep": keep}
        body = {key: value for key, value in fields.items() if value}
        reply = await self._request(f"STREAM.PURGE.{name}", body)
        try:
            return int(reply["purged"])
        except _NOT_THAT as error:
            raise CorruptData(f"not the answer to a purge: {error!r}") from None

    async def delete(self, name: str) -> None:
        """The stream and all its records."""
        await self._request(f"STREAM.DELETE.{name}")

    def _signature(self, subject: str, data: bytes, reply: str) -> dict[str, str] | None:
        """By the NKey that this side logs in to NATS with, if it has one."""
        login = NatsOptions(section_of(self._nats)).login
        now_ms = wall_ms()
        return login.signed(
            lambda key, signature: sign(
                {KEY: key}, subject, data, signature, now_ms=now_ms, reply=reply
            )
        )

    async def _request(self, verb: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        data = json.dumps(body).encode() if body else b""
        try:
            subject = self._prefix + verb
            message = await ask(
                self._client, subject, data, self._signature, timeout_s=self._timeout_s
            )
            reply = json.loads(message.data)
        except nats.errors.NoRespondersError:
            raise NodeUnreachable(
                f"no streamlog node takes requests at this NATS server (subject {self._prefix}>):"
                " none is connected to it, or the cluster has no controller;"
                " `streamlog cluster check` says which"
            ) from None
        except nats.errors.TimeoutError:
            raise RequestTimedOut(f"no answer to {verb} in {self._timeout_s} s") from None
        except nats.errors.Error as error:
            raise NodeUnreachable(str(error)) from None
        except (ValueError, RecursionError):
            raise CorruptData(f"the answer to {verb} is not JSON") from None
        if not isinstance(reply, dict):
            raise CorruptData(f"the answer to {verb} is no object of JSON")
        if "error" in reply:
            raise streamlog_error(reply["error"])
        return reply


def stream_details(reply: Mapping[str, Any]) -> StreamDetails:
    """Of a StreamInfo in JSON; raises CorruptData if it is none."""
    try:
        state, fields, cluster = reply["state"], reply["config"], reply.get("cluster") or {}
        return StreamDetails(
            config=config_from_json({k: v for k, v in fields.items() if k in JETSTREAM_FIELDS}),
            created=datetime.fromisoformat(reply["created"]),
            messages=int(state["messages"]),
            size_bytes=int(state["bytes"]),
            first_sequence=int(state["first_seq"]),
            last_sequence=int(state["last_seq"]),
            first_time=_time(state["first_ts"]),
            last_time=_time(state["last_ts"]),
            leader=None if cluster.get("leader") is None else str(cluster["leader"]),
            did_create=bool(reply.get("did_create")),
            replicas=tuple(_replica(each) for each in cluster.get("replicas", ())),
            auto_paused=AUTO_PAUSED in (fields.get("metadata") or {}),
        )
    except _NOT_THAT as error:
        raise CorruptData(f"not a description of a stream: {error!r}") from None


def _replica(fields: Mapping[str, Any]) -> ReplicaDetails:
    return ReplicaDetails(
        name=str(fields["name"]),
        current=bool(fields["current"]),
        offline=bool(fields.get("offline")),
        lag=int(fields.get("lag", 0)),
    )


def _time(text: str) -> datetime | None:
    time = datetime.fromisoformat(text)
    return None if time.year == _EMPTY_STREAM_YEAR else time
