"""The verbs about streams: a request's fields in; a reply's fields, Refused or our errors out."""

from collections.abc import Callable, Mapping
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
from streamlog.admin.messages import (
    ReadablePartition,
    StoredMessage,
    last_message,
    message_at,
    next_message,
)
from streamlog.admin.stream_config import config_from_json
from streamlog.admin.stream_info import ShownPartition, stream_info
from streamlog.errors import StreamlogError
from streamlog.metadata.image import Image, StreamImage
from streamlog.metadata.stream import StreamConfig
from streamlog.metadata.subjects import overlap, partition_subject
from streamlog.model import TopicPartition

NAMES_MAX: Final = 1024
LIST_MAX: Final = 256

Fields = Mapping[str, Any]


class Metadata(Protocol):
    """What is needed of ``metadata.service.MetadataService``."""

    @property
    def image(self) -> Image: ...
    async def create_stream(self, config: StreamConfig) -> tuple[StreamImage, bool]: ...
    async def update_stream(self, config: StreamConfig) -> StreamImage: ...
    async def delete_stream(self, name: str) -> None: ...


class AdministeredPartition(ReadablePartition, ShownPartition, Protocol):
    """What is needed of ``partition.owner.Partition``."""

    async def purge(self, up_to_offset: int) -> int: ...


class Partitions(Protocol):
    """What is needed of ``partition.registry.Registry``."""

    def partition(self, tp: TopicPartition) -> AdministeredPartition: ...


class Streams:
    """Every method is one verb."""

    def __init__(
        self,
        metadata: Metadata,
        partitions: Partitions,
        *,
        domain: str,
        now_ms: Callable[[], int],
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
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
        return await self._info(self._metadata.image.stream(name))

    async def delete(self, name: str, fields: Fields) -> dict[str, Any]:
        if fields:
            raise Refused(NOT_EMPTY)
        await self._metadata.delete_stream(name)
        return {"success": True}

    async def names(self, _: str, fields: Fields) -> dict[str, Any]:
        names, page = self._page(fields, NAMES_MAX)
        return {**page, "streams": names}

    async def list_streams(self, _: str, fields: Fields) -> dict[str, Any]:
        names, page = self._page(fields, LIST_MAX)
        streams = [self._metadata.image.streams[name] for name in names]
        return {**page, "streams": [await self._info(stream) for stream in streams]}

    async def purge(self, name: str, fields: Fields) -> dict[str, Any]:
        sequence, keep = _number(fields, "seq"), _number(fields, "keep")
        if sequence and keep:
            raise Refused(BAD_REQUEST)
        if fields.get("filter") not in (None, "", ">"):
            raise Refused(purge_failed("filter: purging by subject is not supported"))
        partitions = self._all_of(self._metadata.image.stream(name))
        if sequence and len(partitions) > 1:
            raise Refused(purge_failed("seq: each partition has sequences of its own"))
        purged = 0
        for partition in partitions:
            up_to = sequence - 1 if sequence else partition.high_watermark - keep
            purged += await partition.purge(up_to)
        return {"success": True, "purged": purged}

    async def message(self, name: str, fields: Fields) -> dict[str, Any]:
        return {"message": (await self.find_message(name, fields)).json()}

    async def find_message(self, name: str, fields: Fields) -> StoredMessage:
        """By seq; last_by_subj; or next_by_subj with an optional seq. Of partition 0."""
        sequence = _number(fields, "seq")
        last, following = _text(fields, "last_by_subj"), _text(fields, "next_by_subj")
        if fields.get("batch") or fields.get("max_bytes") or fields.get("multi_last"):
            raise Refused(bad_request("only one message at a time"))
        if fields.get("start_time"):
            raise Refused(bad_request("start_time is not supported"))
        if not (sequence or last or following) or (last and (sequence or following)):
            raise Refused(BAD_REQUEST)
        self._metadata.image.stream(name)
        partition = self._partitions.partition(TopicPartition(name, 0))
        if last:
            return await last_message(partition, last)
        if following:
            return await next_message(partition, following, sequence)
        return await message_at(partition, sequence)

    def size_bytes(self) -> int:
        """Of all streams' partitions on this node."""
        streams = self._metadata.image.streams.values()
        return sum(
            partition.statistics().size_bytes
            for stream in streams
            for partition in self._open_ones(stream)
        )

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
        return await stream_info(
            stream, self._open_ones(stream), domain=self._domain, now_ms=self._now_ms()
        )

    def _all_of(self, stream: StreamImage) -> list[AdministeredPartition]:
        numbers = range(len(stream.partitions))
        return [self._partitions.partition(TopicPartition(stream.name, n)) for n in numbers]

    def _open_ones(self, stream: StreamImage) -> list[AdministeredPartition]:
        """One that cannot be opened must not hide the stream."""
        found = []
        for number in range(len(stream.partitions)):
            try:
                found.append(self._partitions.partition(TopicPartition(stream.name, number)))
            except StreamlogError:
                continue
        return found

    def _page(self, fields: Fields, limit: int) -> tuple[list[str], dict[str, int]]:
        """Sorted names from ``offset`` on, at most ``limit``; of those that watch ``subject``."""
        pattern, streams = _text(fields, "subject"), self._metadata.image.streams
        names = sorted(
            name for name, stream in streams.items() if not pattern or _watches(stream, pattern)
        )
        offset = min(_number(fields, "offset"), len(names))
        page = {"total": len(names), "offset": offset, "limit": limit}
        return names[offset : offset + limit], page


def _watches(stream: StreamImage, pattern: str) -> bool:
    numbers = range(len(stream.partitions))
    return any(
        overlap(partition_subject(subject, number), pattern)
        for subject in stream.config.subjects
        for number in numbers
    )


def _number(fields: Fields, key: str) -> int:
    """A count in a request; 0 where it is not there."""
    value = fields.get(key) or 0
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Refused(bad_request(f"{key}: not a number"))
    return value


def _text(fields: Fields, key: str) -> str:
    value = fields.get(key) or ""
    if not isinstance(value, str):
        raise Refused(bad_request(f"{key}: not a text"))
    return value
