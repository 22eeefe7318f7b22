"""The verbs about streams and their consumers: a request's fields in; a reply's fields, or errors, out."""

import asyncio
import base64
from collections.abc import Callable, Sequence
from typing import Any, Final

from streamlog.authz.permissions import Permissions
from streamlog.authz.visibility import Metadata
from streamlog.control.leaders.leader_router import LeaderRouter
from streamlog.control.messages.stored_messages import StoredMessage
from streamlog.control.messages.subject_counts import page_of
from streamlog.control.read_barrier import ReadBarrier
from streamlog.errors import (
    MessageErased,
    MessageNotFound,
    MessageNotStored,
    StreamExists,
    StreamNotFound,
)
from streamlog.jetstream.auth.authorization import check_update
from streamlog.jetstream.errors import (
    BAD_REQUEST,
    CONSUMER_NOT_FOUND,
    NAME_MISMATCH,
    NO_PEERS,
    PATH_IN_NAME,
    REPLICAS,
    ApiRefused,
    invalid_config,
    message_delete_failed,
    no_consumer,
    purge_failed,
    sequence_not_found,
)
from streamlog.jetstream.messages.direct_query import message_query
from streamlog.jetstream.requests.fields import Fields, number, text
from streamlog.jetstream.verbs.stream_config import check_creation, config_from_json, normalised
from streamlog.jetstream.verbs.stream_info import rfc3339, stream_info
from streamlog.metadata.controller.streams import LASTING
from streamlog.metadata.image.metadata_image import StreamImage
from streamlog.metadata.stream.config import (
    StreamConfig,
    check_writable_by_clients,
    is_hidden,
    is_internal,
)
from streamlog.metadata.stream.subjects import SUBJECT_BYTES_MAX
from streamlog.metadata.stream.write_state import check_may_be_cut
from streamlog.model import TopicPartition

NAMES_MAX: Final = 1024
LIST_MAX: Final = 256
LOOKED_AT_ONCE: Final = 2_000
"""Streams and their subjects, before others have their turn of the event loop."""
COUNTED_PARTITIONS_MAX: Final = 64
"""Of a stream with more of them the number of subjects is not told."""


class Streams:
    """Every method is one verb."""

    def __init__(
        self,
        metadata: Metadata,
        leaders: LeaderRouter,
        *,
        domain: str,
        now_ms: Callable[[], int],
        access: Permissions | None = None,
        freshness: ReadBarrier | None = None,
    ) -> None:
        """``access``: of the client; ``metadata`` is as that one sees it."""
        self._metadata = metadata
        self._access = access
        self.freshness = freshness or ReadBarrier(metadata)
        self._leaders = leaders
        self._domain = domain
        self._now_ms = now_ms

    async def create(self, name: str, fields: Fields) -> dict[str, Any]:
        if fields.get("name", "") != name:
            raise ApiRefused(NAME_MISMATCH)
        if "/" in name or "\\" in name:
            raise ApiRefused(PATH_IN_NAME)
        check_creation(fields)
        config = self._honoured(normalised(fields))
        if self._access is not None:
            self._access.check_creation(name)
            self._access.check_bindings(config)
        stream, created = await self._metadata.create_stream(config)
        if not created and self._access is not None and not self._access.sees(name):
            raise StreamExists(f"stream {name!r} exists")
        info = await self._info(stream)
        return {**info, "did_create": True} if created else info

    async def update(self, name: str, fields: Fields) -> dict[str, Any]:
        asked = normalised(fields)
        if asked["name"] != name:
            raise ApiRefused(NAME_MISMATCH)
        known = (await self.stream(name)).config
        for lasting in LASTING:
            if getattr(known, lasting.name) and not asked[lasting.jetstream]:
                raise ApiRefused(invalid_config(lasting.told))
        config = self._honoured(asked)
        seen = None
        if self._access is not None:
            check_update(self._access, known, config)
            seen = known
        return await self._info(await self._metadata.update_stream(config, seen))

    async def info(self, name: str, fields: Fields) -> dict[str, Any]:
        pattern, offset = text(fields, "subjects_filter"), max(fields.get("offset", 0), 0)
        details = bool(fields.get("deleted_details"))
        await self.freshness.catch_up()
        stream = self._known(name)
        info: dict[str, Any] = {"total": 0, "offset": 0, "limit": 0}
        info |= (await self._infos([stream], details=details))[0]
        counts = await self._subject_counts(stream)
        if None not in counts and any(counts):
            info["state"]["num_subjects"] = sum(filter(None, counts))
        if pattern:
            page = await page_of(await self._subjects(stream, pattern), offset)
            if page.subjects:
                info["state"]["subjects"] = page.subjects
            info |= page.json()
        return info

    async def _subject_counts(self, stream: StreamImage) -> list[int | None]:
        """Of each partition, unless they are many."""
        places = range(len(stream.partitions))
        if len(places) > COUNTED_PARTITIONS_MAX:
            return []
        tps = [TopicPartition(stream.name, place) for place in places]
        return await asyncio.gather(*(self._leaders.subject_count(tp) for tp in tps))

    async def _subjects(self, stream: StreamImage, pattern: str) -> dict[str, int]:
        """A subject may have messages in several partitions."""
        totals: dict[str, int] = {}
        for place in range(len(stream.partitions)):
            tp = TopicPartition(stream.name, place)
            for subject, count in (await self._leaders.subjects(tp, pattern)).items():
                totals[subject] = totals.get(subject, 0) + count
        return totals

    async def delete(self, name: str, _: Fields) -> dict[str, Any]:
        await self.stream(name)
        await self._metadata.delete_stream(name)
        return {"success": True}

    async def names(self, _: str, fields: Fields) -> dict[str, Any]:
        await self.freshness.catch_up()
        names, page = await self._page(fields, NAMES_MAX)
        return {**page, "streams": names}

    async def list_streams(self, _: str, fields: Fields) -> dict[str, Any]:
        await self.freshness.catch_up()
        names, page = await self._page(fields, LIST_MAX)
        streams = [self._metadata.image.streams[name] for name in names]
        return {**page, "streams": await self._infos(streams)}

    async def purge(self, name: str, fields: Fields) -> dict[str, Any]:
        sequence, keep = number(fields, "seq"), number(fields, "keep")
        if sequence and keep:
            raise ApiRefused(BAD_REQUEST)
        pattern = text(fields, "filter")
        stream = await self.stream(name)
        check_writable_by_clients(name)
        check_may_be_cut(stream.config)
        if stream.config.deny_purge:
            raise ApiRefused(purge_failed("stream purge not permitted"))
        count = len(stream.partitions)
        if sequence and count > 1:
            raise ApiRefused(purge_failed("seq: each partition has sequences of its own"))
        purged = 0
        for partition in range(count):
            tp = TopicPartition(name, partition)
            purged += await self._leaders.purge(tp, sequence=sequence, keep=keep, pattern=pattern)
        return {"success": True, "purged": purged}

    async def delete_message(self, name: str, fields: Fields) -> dict[str, Any]:
        """Of partition 0, as ``message``."""
        sequence = number(fields, "seq")
        config = (await self.stream(name)).config
        check_writable_by_clients(name)
        check_may_be_cut(config)
        if config.deny_delete:
            raise ApiRefused(message_delete_failed("message delete not permitted"))
        try:
            await self._leaders.delete(TopicPartition(name, 0), sequence)
        except MessageNotStored:
            raise ApiRefused(message_delete_failed("stream store EOF")) from None
        except MessageErased:
            raise ApiRefused(sequence_not_found(sequence)) from None
        except MessageNotFound:
            raise ApiRefused(message_delete_failed("no message found")) from None
        return {"success": True}

    async def message(self, name: str, fields: Fields) -> dict[str, Any]:
        """Of partition 0."""
        query = message_query(fields)
        await self.stream(name)
        found = await self._leaders.message(name, query)
        return {"message": message_json(found, headers=not fields.get("no_hdr", False))}

    async def stream(self, name: str) -> StreamImage:
        """Raises StreamNotFound, but not for one that this node is about to hear of."""
        try:
            return self._known(name)
        except StreamNotFound:
            await self.freshness.catch_up()
        return self._known(name)

    def _known(self, name: str) -> StreamImage:
        """What is no business of NATS is not there; other internal streams may be read."""
        if is_hidden(name):
            raise StreamNotFound(f"{name!r} is an internal stream")
        return self._metadata.image.stream(name)

    def _honoured(self, asked: Fields) -> StreamConfig:
        """Of a configuration that keeps JetStream's rules. Raises ApiRefused, InvalidRequest."""
        image = self._metadata.image
        if asked["num_replicas"] > 1 and len(image.nodes) == 1:
            raise ApiRefused(REPLICAS)
        placement = asked.get("placement") or {}
        if placement.get("tags") or placement.get("cluster", "") not in ("", image.cluster_id):
            raise ApiRefused(NO_PEERS)  # no node has tags
        return config_from_json(asked)

    async def _info(self, stream: StreamImage) -> dict[str, Any]:
        return (await self._infos([stream]))[0]

    async def _infos(
        self, streams: Sequence[StreamImage], *, details: bool = False
    ) -> list[dict[str, Any]]:
        """A leader that does not answer must not hide the streams."""
        states = await self._leaders.states(streams, details=details)
        return [
            stream_info(
                stream,
                [states.get(TopicPartition(stream.name, n)) for n in range(len(stream.partitions))],
                image=self._metadata.image,
                domain=self._domain,
                now_ms=self._now_ms(),
            )
            for stream in streams
        ]

    async def _page(self, fields: Fields, limit: int) -> tuple[list[str], dict[str, int]]:
        """Sorted names from ``offset`` on, at most ``limit``; of those that watch ``subject``."""
        pattern, streams = text(fields, "subject"), self._metadata.image.streams
        if len(pattern) > SUBJECT_BYTES_MAX:
            raise ApiRefused(BAD_REQUEST)  # it is compared with each stream's
        names, looked = list[str](), 0
        for name, stream in streams.items():
            if not is_internal(name) and (not pattern or stream.config.hears(pattern)):
                names.append(name)
            looked += 1 + (len(stream.config.subjects) if pattern else 0)
            if looked >= LOOKED_AT_ONCE:
                looked = 0
                await asyncio.sleep(0)
        names.sort()
        offset = min(max(fields.get("offset", 0), 0), len(names))
        page = {"total": len(names), "offset": offset, "limit": limit}
        return names[offset : offset + limit], page


def message_json(message: StoredMessage, *, headers: bool = True) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "subject": message.subject,
        "seq": message.sequence,
        "time": rfc3339(message.timestamp_ms),
    }
    if message.data:
        fields["data"] = base64.b64encode(message.data).decode()
    if headers and message.header_block:
        fields["hdrs"] = base64.b64encode(message.header_block).decode()
    return fields


NOT_SERVED: Final = no_consumer(
    "streamlog serves no JetStream consumers; any Kafka client reads the stream"
)


class Consumers:
    """The verbs about consumers: there are none, and none can be made.

    A client's connection may not publish what a consumer delivers (its replies begin with
    ``$JS.ACK``, which nats-server refuses from clients), so that a consumer could be described, but
    never read.
    """

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
