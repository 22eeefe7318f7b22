"""The verbs about streams: a request's fields in; a reply's fields, Refused or our errors out."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from streamlog.admin.errors import (
    BAD_REQUEST,
    NAME_MISMATCH,
    NOT_EMPTY,
    PATH_IN_NAME,
    REPLICAS,
    Refused,
    bad_request,
    purge_failed,
)
from streamlog.admin.fields import Fields, number, text
from streamlog.admin.leaders import Leaders
from streamlog.admin.messages import MessageQuery, StoredMessage
from streamlog.admin.stream_config import config_from_json
from streamlog.admin.stream_info import stream_info
from streamlog.errors import StreamlogError, StreamNotFound
from streamlog.metadata.commands import AwaitApplied, Command, DescribeCluster
from streamlog.metadata.forwarding import Granted
from streamlog.metadata.image import Image, StreamImage
from streamlog.metadata.stream import StreamConfig, is_internal
from streamlog.metadata.subjects import overlap, partition_subject
from streamlog.model import TopicPartition

logger = logging.getLogger(__name__)

NAMES_MAX: Final = 1024
LIST_MAX: Final = 256
CATCH_UP_S: Final = 0.5
"""How long a description waits to be of the latest metadata, before it is of what there is."""


class Metadata(Protocol):
    """What is needed of ``metadata.service.MetadataService``."""

    @property
    def image(self) -> Image: ...
    async def create_stream(self, config: StreamConfig) -> tuple[StreamImage, bool]: ...
    async def update_stream(self, config: StreamConfig) -> StreamImage: ...
    async def delete_stream(self, name: str) -> None: ...
    async def request(self, command: Command) -> Granted: ...
    async def take(self, command: Command, *, forwarded: bool) -> Granted: ...


class Streams:
    """Every method is one verb."""

    def __init__(
        self,
        metadata: Metadata,
        leaders: Leaders,
        *,
        domain: str,
        now_ms: Callable[[], int],
    ) -> None:
        self._metadata = metadata
        self._leaders = leaders
        self._domain = domain
        self._now_ms = now_ms

    async def create(self, name: str, fields: Fields) -> dict[str, Any]:
        stream, created = await self._metadata.create_stream(self._config(name, fields))
        return {**await self._info(stream), "did_create": created}

    async def update(self, name: str, fields: Fields) -> dict[str, Any]:
        config = self._config(name, fields)
        return await self._info(await self._metadata.update_stream(config))

    async def info(self, name: str, fields: Fields) -> dict[str, Any]:
        if fields.get("subjects_filter"):
            raise Refused(bad_request("subjects_filter is not supported"))
        await self.catch_up()
        return await self._info(self._metadata.image.stream(name))

    async def delete(self, name: str, fields: Fields) -> dict[str, Any]:
        if fields:
            raise Refused(NOT_EMPTY)
        await self._metadata.delete_stream(name)
        return {"success": True}

    async def names(self, _: str, fields: Fields) -> dict[str, Any]:
        await self.catch_up()
        names, page = self._page(fields, NAMES_MAX)
        return {**page, "streams": names}

    async def list_streams(self, _: str, fields: Fields) -> dict[str, Any]:
        await self.catch_up()
        names, page = self._page(fields, LIST_MAX)
        streams = [self._metadata.image.streams[name] for name in names]
        return {**page, "streams": await self._infos(streams)}

    async def purge(self, name: str, fields: Fields) -> dict[str, Any]:
        sequence, keep = number(fields, "seq"), number(fields, "keep")
        if sequence and keep:
            raise Refused(BAD_REQUEST)
        if fields.get("filter") not in (None, "", ">"):
            raise Refused(purge_failed("filter: purging by subject is not supported"))
        count = len((await self.stream(name)).partitions)
        if sequence and count > 1:
            raise Refused(purge_failed("seq: each partition has sequences of its own"))
        purged = 0
        for partition in range(count):
            tp = TopicPartition(name, partition)
            purged += await self._leaders.purge(tp, sequence=sequence, keep=keep)
        return {"success": True, "purged": purged}

    async def message(self, name: str, fields: Fields) -> dict[str, Any]:
        return {"message": (await self.find_message(name, fields)).json()}

    async def find_message(self, name: str, fields: Fields) -> StoredMessage:
        """By seq; last_by_subj; or next_by_subj with an optional seq. Of partition 0."""
        query = MessageQuery.of(fields)
        await self.stream(name)
        return await self._leaders.message(name, query)

    async def stream(self, name: str) -> StreamImage:
        """Raises StreamNotFound, but not for one that this node is about to hear of."""
        try:
            return self._metadata.image.stream(name)
        except StreamNotFound:
            await self.catch_up()
        return self._metadata.image.stream(name)

    async def catch_up(self) -> None:
        """Know what the controller has decided: whoever was told so by another node finds it here.

        Without a controller nothing is decided, and what there is will do.
        """
        try:
            async with asyncio.timeout(CATCH_UP_S):
                described = await self._metadata.request(DescribeCluster())
                offset = int(described.result["high_watermark"])
                command = AwaitApplied(offset=offset, wait_ms=int(CATCH_UP_S * 1000))
                await self._metadata.take(command, forwarded=True)
        except (StreamlogError, TimeoutError) as error:
            logger.debug("metadata may be old", extra={"error": str(error)})

    def _config(self, name: str, fields: Fields) -> StreamConfig:
        if fields.get("name") != name:
            raise Refused(NAME_MISMATCH)
        if "/" in name or "\\" in name:
            raise Refused(PATH_IN_NAME)
        config = config_from_json(fields)
        if config.replicas > 1 and len(self._metadata.image.nodes) == 1:
            raise Refused(REPLICAS)
        return config

    async def _info(self, stream: StreamImage) -> dict[str, Any]:
        return (await self._infos([stream]))[0]

    async def _infos(self, streams: Sequence[StreamImage]) -> list[dict[str, Any]]:
        """A leader that does not answer must not hide the streams."""
        states = await self._leaders.states(streams)
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

    def _page(self, fields: Fields, limit: int) -> tuple[list[str], dict[str, int]]:
        """Sorted names from ``offset`` on, at most ``limit``; of those that watch ``subject``."""
        pattern, streams = text(fields, "subject"), self._metadata.image.streams
        names = sorted(
            name
            for name, stream in streams.items()
            if not is_internal(name) and (not pattern or _watches(stream, pattern))
        )
        offset = min(number(fields, "offset"), len(names))
        page = {"total": len(names), "offset": offset, "limit": limit}
        return names[offset : offset + limit], page


def _watches(stream: StreamImage, pattern: str) -> bool:
    numbers = range(len(stream.partitions))
    return any(
        overlap(partition_subject(subject, number), pattern)
        for subject in stream.config.subjects
        for number in numbers
    )
