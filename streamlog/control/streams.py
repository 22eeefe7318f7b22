"""Operations on streams: what they are set to, where they are, and their end."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple
from uuid import UUID

from streamlog.acl.rules import Operation
from streamlog.control.leaders.leader_router import States
from streamlog.control.leaders.partition_state import LeaderPartitionState, ManifestState
from streamlog.control.operation import DONE, Operations, operation
from streamlog.control.service import LOOKED_AT_ONCE
from streamlog.errors import (
    DeletionDenied,
    InvalidRequest,
    InvalidStreamConfig,
    NotLeader,
    PartlyDone,
    StreamExists,
    StreamlogError,
)
from streamlog.metadata import controller
from streamlog.metadata.commands import (
    AlterStream,
    Command,
    CreateStream,
    DeleteStream,
    PlaceStream,
    UpdateStream,
)
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.stream.alteration import SettingChange, altered
from streamlog.metadata.stream.stream_config import (
    RESTORING,
    StreamConfig,
    check_writable_by_clients,
)
from streamlog.metadata.stream.stream_subjects import BINDING_SETTINGS
from streamlog.metadata.stream.subjects import SUBJECT_BYTES_MAX
from streamlog.metadata.stream.write_state import check_may_be_cut
from streamlog.model import NO_LEADER, NodeId, TopicPartition

LIST_MAX: Final = 1_000
"""Streams in one list."""
_NO_ID: Final = UUID(int=0)

Assignments = tuple[tuple[NodeId, ...], ...]
"""The nodes of each partition, in order; empty: the controller chooses."""


class CreatedStream(NamedTuple):
    """A stream, and whether it is new: the same again is a success."""

    stream: StreamImage
    created: bool


@dataclass(frozen=True, slots=True)
class PartitionOrigin:
    """What a partition takes its messages from: the stream, its API, and the filters, if there are any."""

    name: str
    lag: int
    """Messages of the origin that are not here yet, as it said last."""
    active_ms: int | None
    """Milliseconds since something was heard of it; None: nothing was."""
    error: str | None
    """Why it is not read, or what comes is not stored."""


@dataclass(frozen=True, slots=True)
class PartitionTier:
    """What of a partition of a tiered stream is in the object store."""

    local_log_start_offset: int
    """What its leader has below is in the store alone."""
    tiered_end_offset: int | None
    """The store has all below; None: nothing is there."""
    lag_bytes: int
    """Of closed segments that the store does not have yet."""


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition; the offsets and sizes are None where its leader could not be asked."""

    partition: int
    leader: NodeId | None
    leader_epoch: int
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    log_start_offset: int | None = None
    high_watermark: int | None = None
    messages: int | None = None
    size_bytes: int | None = None
    first_ms: int | None = None
    """When its first record was written, in ms since 1970; None: it has none."""
    last_ms: int | None = None
    replica_lags: Mapping[NodeId, int] = field(default_factory=dict)
    """How many records each follower lacks."""
    is_auto_paused: bool = False
    origins: tuple[PartitionOrigin, ...] = ()
    """Of a mirror, or a stream with sources: how far it has come with each."""
    tier: PartitionTier | None = None
    """None: the stream is not tiered, or the leader could not be asked."""


@dataclass(frozen=True, slots=True)
class StreamDescription:
    """A stream as the cluster has it now."""

    config: StreamConfig
    stream_id: UUID
    created_ms: int
    messages: int
    size_bytes: int
    partitions: tuple[PartitionDescription, ...]
    created: bool = False
    """It is new: made by the operation that describes it."""


@dataclass(frozen=True, slots=True)
class StreamPage:
    """Some of the streams, by name."""

    total: int
    offset: int
    streams: tuple[StreamDescription, ...]


@dataclass(frozen=True, slots=True)
class PartitionManifest:
    """Which manifest of a partition counts, and what is in the object store by it."""

    partition: int
    log_start_offset: int
    local_log_start_offset: int
    """What its leader has below is in the store alone."""
    end_offset: int | None
    """All from the log start up to there is in the store; None: nothing is."""
    leader_epoch: int
    """With ``version`` the name of the manifest."""
    version: int


@dataclass(frozen=True, slots=True)
class StreamManifests:
    """What readers of the object store need, besides its URL and credentials."""

    cluster_id: str
    """With ``stream_id`` the folder in the store."""
    stream_id: UUID
    partitions: tuple[PartitionManifest, ...]


@dataclass(frozen=True, slots=True)
class Purged:
    """How many messages were removed."""

    purged: int


def _with_state(known: PartitionDescription, state: LeaderPartitionState) -> PartitionDescription:
    return replace(
        known,
        log_start_offset=state.log_start_offset,
        high_watermark=state.high_watermark,
        messages=state.message_count,
        size_bytes=state.size_bytes,
        first_ms=state.first_ms,
        last_ms=state.last_ms,
        replica_lags=dict(state.replica_lags),
        is_auto_paused=state.is_auto_paused,
        origins=tuple(PartitionOrigin(*it) for it in state.origins),
        tier=None if state.tier is None else PartitionTier(*state.tier),
    )


def describe(stream: StreamImage, states: States, *, created: bool = False) -> StreamDescription:
    """What is known of it; ``states`` may lack some of its partitions."""
    partitions: list[PartitionDescription] = []
    for number, partition in enumerate(stream.partitions):
        known = PartitionDescription(
            number,
            None if partition.leader == NO_LEADER else partition.leader,
            partition.leader_epoch,
            tuple(partition.replicas),
            tuple(partition.isr),
        )
        state = states.get(TopicPartition(stream.name, number))
        partitions.append(known if state is None else _with_state(known, state))
    return StreamDescription(
        stream.config,
        stream.stream_id,
        stream.created_ms,
        sum(it.messages or 0 for it in partitions),
        sum(it.size_bytes or 0 for it in partitions),
        tuple(partitions),
        created,
    )


def _check_metadata(config: StreamConfig) -> None:
    """Raises InvalidStreamConfig."""
    if config.is_restoring:
        raise InvalidStreamConfig(f"metadata: {RESTORING} is set by a restore alone")


def _described(stream: StreamImage) -> StreamDescription:
    return describe(stream, {})


def _created(result: CreatedStream) -> StreamDescription:
    return describe(result.stream, {}, created=result.created)


MANIFESTS_AT_ONCE: Final = 100
"""Partitions whose leaders are asked together."""
TRIMS_AT_ONCE: Final = 100
"""Partitions whose replicas are waited for together."""


@dataclass(frozen=True, slots=True)
class PartitionTrim:
    """What is to go of a partition: all below the offset; None: all that is committed."""

    stream: str
    partition: int
    offset: int | None = None

    def __str__(self) -> str:
        """As the audit log has it."""
        to = "the end" if self.offset is None else self.offset
        return f"{self.stream}-{self.partition}, to {to}"


@dataclass(frozen=True, slots=True)
class PartitionTrimmed:
    """What became of it."""

    stream: str
    partition: int
    low_watermark: int | None = None
    """The first offset that the in-sync replicas have; None: see ``error``."""
    error: str = ""
    """The name of an error; "": it was done."""
    reason: str = ""


def _trim_outcomes(trimmed: Sequence[PartitionTrimmed]) -> Iterator[str]:
    return (it.error or DONE for it in trimmed)


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The first offset that the in-sync replicas have."""

    low_watermark: int


class StreamOperations(Operations):
    """Create, change, describe, list, purge and delete streams."""

    group = "streams"

    @property
    def image(self) -> MetadataImage:
        """The metadata as the caller may see it; perhaps older than ``describe`` is."""
        return self._metadata.image

    async def catch_up(self) -> None:
        """The image has all that was decided before this was called, unless no controller is there."""
        await self._service.freshness.catch_up()

    async def find(self, name: str) -> StreamImage:
        """Raises StreamNotFound, but not for a stream that this node is about to hear of."""
        return await self._find(name)

    def known(self, name: str) -> StreamImage:
        """A stream of the image. Raises StreamNotFound."""
        return self._known(name)

    def described(self, name: str) -> StreamImage:
        """As ``known``, for a caller that may DESCRIBE it. Raises TopicForbidden."""
        stream = self.known(name)
        if self._access is not None:
            self._access.check_topic(Operation.DESCRIBE, name)
        return stream

    def check_bindings(self, config: StreamConfig) -> None:
        """Whether the caller may have a stream take these subjects. Raises TopicForbidden."""
        if self._access is not None:
            self._access.check_bindings(config)

    # Acts

    @operation("POST /streams", about=("config",), act=True, shown=_created)
    async def create(
        self, config: StreamConfig, assignments: Assignments = (), validate_only: bool = False
    ) -> CreatedStream:
        """Create a stream. The same stream again is a success.

        ``assignments`` names the nodes of each partition. Its leaders listen when this returns.
        """
        name = config.name
        check_writable_by_clients(name)
        if not validate_only:
            _check_metadata(config)
        if self._access is not None:
            self._access.check_creation(name)
            self._access.check_bindings(config)
        if validate_only:
            image = self._service.image
            decision = controller.create_stream(
                image, config, new_id=_NO_ID, now_ms=0, assignments=assignments
            )
            made = image.apply_all(decision.records, offset=image.offset, epoch=image.epoch)
            return CreatedStream(made.stream(name), created=bool(decision.records))
        command: Command = CreateStream(config=config)
        if assignments:
            command = PlaceStream(config=config, assignments=assignments)
        # A stream that exists already is waited for, too: its leaders may still be on their way.
        created = (await self._metadata.change_stream(command, name)).result["created"]
        if not created and self._access is not None and not self._access.sees(name):
            raise StreamExists(f"stream {name!r} exists")
        return CreatedStream(self._service.image.stream(name), created)

    @operation("PUT /streams/{name}", about=("name",), act=True, shown=_described)
    async def replace(self, name: str, config: StreamConfig) -> StreamImage:
        """Replace all settings of a stream."""
        if config.name != name:
            raise InvalidRequest(f"the settings are those of stream {config.name!r}, not {name!r}")
        _check_metadata(config)
        known = (await self.find(name)).config
        seen = None
        if self._access is not None:
            self._access.check_topic(Operation.ALTER_CONFIGS, name)
            if (known.partitions, known.replicas) != (config.partitions, config.replicas):
                self._access.check_topic(Operation.ALTER, name)
            self._access.check_bindings(config, known)
            seen = known
        await self._metadata.change_stream(UpdateStream(config=config, seen=seen), name)
        return self._service.image.stream(name)

    @operation("PATCH /streams/{name}", about=("name", "changes"), act=True, shown=_described)
    async def alter(
        self,
        name: str,
        changes: tuple[SettingChange, ...],
        assignments: Assignments = (),
        validate_only: bool = False,
    ) -> StreamImage:
        """Change some settings of a stream: all of the changes, or none.

        ``assignments`` names the nodes of each new partition.
        """
        seen = None
        if self._access is not None:
            settings = {it.setting for it in changes}
            if settings & {"partitions", "replicas"}:
                self._access.check_topic(Operation.ALTER, name)
            if settings - {"partitions", "replicas"}:
                self._access.check_topic(Operation.ALTER_CONFIGS, name)
            if settings & (BINDING_SETTINGS | {"partitions"}):
                seen = (await self.find(name)).config
                self._access.check_bindings(altered(seen, changes), seen)
        if validate_only:
            await self.catch_up()
            image = self._metadata.image
            config = altered(image.stream(name).config, changes)
            controller.update_stream(image, config, assignments=assignments)
            return image.stream(name)
        command = AlterStream(name=name, changes=changes, assignments=assignments, seen=seen)
        await self._metadata.change_stream(command, name)
        return self._service.image.stream(name)

    @operation("DELETE /streams/{name}", about=("name",), act=True)
    async def delete(self, name: str, stream_id: UUID | None = None) -> None:
        """Delete a stream with all its messages; with ``stream_id`` only the stream that has this id."""
        if self._access is not None:
            self._access.check_topic(Operation.DELETE, name)
        stream = await self.find(name)
        command = DeleteStream(name=name, stream_id=stream_id)
        await self._metadata.change_stream(command, name, deleted=stream)

    @operation("POST /streams/{name}/purge", about=("name", "partition"), act=True)
    async def purge(
        self,
        name: str,
        partition: int | None = None,
        before_offset: int | None = None,
        keep: int = 0,
        subject: str = "",
    ) -> Purged:
        """Remove messages of a stream, or of one partition: all, or some.

        ``before_offset`` keeps messages from this offset on, ``keep`` the last so many of each partition;
        ``subject`` removes only messages whose subject matches.
        """
        stream = await self.find(name)
        self._check_cut(stream)
        if before_offset is not None and keep:
            raise InvalidRequest("before_offset and keep: only one of them")
        if before_offset is not None and partition is None and len(stream.partitions) > 1:
            raise InvalidRequest("before_offset: name the partition, each has offsets of its own")
        numbers = range(len(stream.partitions)) if partition is None else (partition,)
        sequence = 0 if before_offset is None else before_offset + 1
        purged, done = 0, list[int]()
        for number in numbers:
            stream.partition(number)  # raises PartitionNotFound
            if sequence == 1:
                continue  # nothing is before offset 0
            try:
                purged += await self._service.leaders.purge(
                    stream, number, sequence=sequence, keep=keep, pattern=subject
                )
            except StreamlogError as error:
                if not done:
                    raise
                raise PartlyDone(
                    f"{purged} messages of partitions {done} of {name!r} are removed;"
                    f" partition {number}: {error}"
                ) from None
            done.append(number)
        return Purged(purged)

    @operation("POST /streams/{name}/trim", about=("name", "partition", "offset"), act=True)
    async def trim(
        self, name: str, partition: int, offset: int | None = None, timeout_ms: int = 30_000
    ) -> Trimmed:
        """Remove what is below an offset of a partition, and wait for the in-sync replicas.

        Without ``offset``, all that is committed goes. A partition that begins later is a success. Raises
        OffsetOutOfRange for one that is not committed yet.
        """
        return Trimmed(await self._trim(PartitionTrim(name, partition, offset), timeout_ms / 1000))

    @operation("POST /streams/trim", about=("trims",), act=True, outcomes=_trim_outcomes)
    async def trim_partitions(
        self, trims: tuple[PartitionTrim, ...], timeout_ms: int = 30_000
    ) -> tuple[PartitionTrimmed, ...]:
        """Remove what is below an offset of each of these partitions, as ``trim`` does of one.

        Each partition is by itself: the answer says of each what became of it.
        """
        done: list[PartitionTrimmed] = []
        for start in range(0, len(trims), TRIMS_AT_ONCE):
            some = trims[start : start + TRIMS_AT_ONCE]
            tried = (self._trim_or_say_why(it, timeout_ms / 1000) for it in some)
            done += await asyncio.gather(*tried)
        return tuple(done)

    async def _trim_or_say_why(self, asked: PartitionTrim, timeout_s: float) -> PartitionTrimmed:
        try:
            low = await self._trim(asked, timeout_s)
        except StreamlogError as error:
            name = type(error).__name__
            return PartitionTrimmed(asked.stream, asked.partition, None, name, str(error))
        return PartitionTrimmed(asked.stream, asked.partition, low)

    async def _trim(self, asked: PartitionTrim, timeout_s: float) -> int:
        stream = await self.find(asked.stream)
        self._check_cut(stream)
        stream.partition(asked.partition)
        return await self._service.leaders.trim(
            stream, asked.partition, asked.offset, timeout_s=timeout_s
        )

    def _check_cut(self, stream: StreamImage) -> None:
        """Raises TopicForbidden, StreamStandsStill, DeletionDenied."""
        name = stream.name
        if self._access is not None:
            self._access.check_topic(Operation.DELETE, name)
        check_writable_by_clients(name)
        check_may_be_cut(stream.config)
        if stream.config.deny_purge:
            raise DeletionDenied(f"{name!r} denies to be purged")

    # Questions

    @operation("GET /streams/{name}", about=("name",))
    async def describe(self, name: str) -> StreamDescription:
        """Describe a stream: settings, partitions, sizes."""
        await self.catch_up()
        stream = self.described(name)
        return (await self._descriptions([stream]))[0]

    @operation("GET /streams/{name}/manifests", about=("name",))
    async def manifests(self, name: str) -> StreamManifests:
        """Tell which manifests of a tiered stream count, for readers of the object store.

        The leader of each partition answers for it, and only while its log agrees with the manifest.
        """
        stream = await self.find(name)
        self.described(name)
        leaders, found = self._service.leaders, list[ManifestState]()
        for start in range(0, len(stream.partitions), MANIFESTS_AT_ONCE):
            some = range(start, min(start + MANIFESTS_AT_ONCE, len(stream.partitions)))
            asked = (leaders.manifest(TopicPartition(name, number)) for number in some)
            found += await asyncio.gather(*asked)
        for it in found:
            if it.stream_id != str(stream.stream_id):
                raise NotLeader(f"stream {name!r} is being created again")
        partitions = (PartitionManifest(number, *it[1:]) for number, it in enumerate(found))
        return StreamManifests(self._service.image.cluster_id, stream.stream_id, tuple(partitions))

    async def settings(self, name: str) -> StreamConfig:
        """What a stream is set to. Raises TopicForbidden, StreamNotFound."""
        if self._access is not None:
            self._access.check_topic(Operation.DESCRIBE_CONFIGS, name)
        return self._metadata.image.stream(name).config

    @operation("GET /streams")
    async def list(self, offset: int = 0, limit: int = 100, subject: str = "") -> StreamPage:
        """List streams by name; with ``subject`` those that store messages of it."""
        if not 0 <= limit <= LIST_MAX or offset < 0:
            raise InvalidRequest(f"limit: 0 to {LIST_MAX}; offset: 0 or more")
        await self.catch_up()
        names, known = await self.names(subject), self._metadata.image.streams
        streams = [known[it] for it in names[offset : offset + limit] if it in known]
        return StreamPage(len(names), offset, tuple(await self._descriptions(streams)))

    async def names(self, subject: str = "") -> Sequence[str]:
        """All that the caller may know of, sorted, but internal ones; those that hear ``subject``."""
        if len(subject) > SUBJECT_BYTES_MAX:
            raise InvalidRequest(f"subject: more than {SUBJECT_BYTES_MAX} characters")
        image, access = self._service.image, self._access
        names = await self._service.stream_names.of(image.streams)
        if access is None and not subject:
            return names
        chosen, looked = list[str](), 0
        for name in names:
            config = image.streams[name].config
            # Rules change without the image, so that what a caller sees is judged each time.
            if (access is None or access.sees(name)) and (not subject or config.hears(subject)):
                chosen.append(name)
            looked += 1 + (len(config.subjects) if subject else 0)
            if looked >= LOOKED_AT_ONCE:
                looked = 0
                await asyncio.sleep(0)
        return chosen

    async def states(self, streams: Sequence[StreamImage], *, details: bool = False) -> States:
        """What leaders say of their partitions; without those whose leader does not answer."""
        return await self._service.leaders.states(streams, details=details)

    async def _descriptions(self, streams: Sequence[StreamImage]) -> Sequence[StreamDescription]:
        states = await self.states(streams)
        return [describe(stream, states) for stream in streams]
