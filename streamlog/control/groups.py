"""Operations on consumer groups: how far they have come, and where they go on."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from streamlog.acl.rules import Operation
from streamlog.control.leaders.group_coordinators import (
    GroupMember,
    GroupOffset,
    GroupSummary,
    KnownGroup,
    WantedOffset,
)
from streamlog.control.leaders.partition_state import LeaderPartitionState
from streamlog.control.messages.ordered_read import PassageQuery
from streamlog.control.operation import DONE, Operations, operation
from streamlog.errors import (
    GroupNotEmpty,
    GroupNotFound,
    GroupSubscribed,
    InvalidRequest,
    NotCoordinator,
    NotLeader,
    PartitionNotFound,
    StalePartition,
    StreamlogError,
)
from streamlog.fairness import cooperatively
from streamlog.groups.offsets import consumer_lag
from streamlog.groups.records import NO_TOPIC_ID, TopicPartitionId
from streamlog.groups.requests import PartitionId
from streamlog.groups.shares.share_group_config import GROUP_CONFIGS, check_config, check_together
from streamlog.metadata.image.feature_level import SHARE_GROUPS_LEVEL, check_reached
from streamlog.metadata.image.metadata_image import StreamImage
from streamlog.metadata.stream.stream_config import OFFSETS_STREAM
from streamlog.model import NodeId, TopicPartition

LIST_MAX: Final = 1_000
"""Groups in one list."""
MEMBERS_NAMED: Final = 3
"""Of those that keep a group from being changed."""
LOOKED_AT_ONCE: Final = 2_000
"""Groups, before others have their turn of the event loop."""


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group in a list."""

    group: str
    state: str
    protocol_type: str
    members: int
    group_type: str
    """``classic``, ``consumer`` or ``share``: the protocol that its members speak."""


@dataclass(frozen=True, slots=True)
class GroupPage:
    """Some of the groups, by name."""

    total: int
    offset: int
    groups: tuple[ListedGroup, ...]
    missing_nodes: tuple[NodeId, ...]
    """Their groups are not in the list: they did not answer. -1: some groups have no coordinator."""


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """A partition that a group has committed an offset of, or reads."""

    stream: str
    partition: int
    committed_offset: int | None
    end_offset: int | None
    """The high watermark; None where the leader could not be asked."""
    lag: int | None
    leader_epoch: int | None
    """Of the record before the committed offset, as the group has told."""
    metadata: str
    member_id: str | None
    """Who reads it."""


@dataclass(frozen=True, slots=True)
class AssignedPartition:
    """What a consumer reads."""

    stream: str
    partition: int


@dataclass(frozen=True, slots=True)
class GroupConsumer:
    """A member of a group; of what it reads, the streams that the caller may know of."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[AssignedPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group, its members, and how far it has come."""

    group: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: NodeId | None
    members: tuple[GroupConsumer, ...]
    partitions: tuple[GroupPartition, ...]
    lag: int | None
    """Over all that was committed; None if any of it is not known, or nothing was."""
    group_type: str
    """``classic``, ``consumer`` or ``share``: the protocol that its members speak."""


@dataclass(frozen=True, slots=True)
class StreamPartitions:
    """Partitions of a stream; None: all of them."""

    stream: str
    partitions: tuple[int, ...] | None = None

    def __str__(self) -> str:
        numbers = "all" if self.partitions is None else ",".join(map(str, self.partitions))
        return f"{self.stream}/{numbers}"


@dataclass(frozen=True, slots=True)
class ForgottenOffset:
    """A partition in which a group was to forget how far it has come."""

    stream: str
    partition: int | None
    """None: all that were asked for, as none of them can be told apart."""
    error: str | None = None
    """Why nothing is changed: the name of the error's class. None: it is forgotten."""
    message: str = ""


def _outcomes(forgotten: Iterable[ForgottenOffset]) -> Iterable[str]:
    return (it.error or DONE for it in forgotten)


@dataclass(frozen=True, slots=True)
class StartOffset:
    """Where a share group is to go on in a partition."""

    stream: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.stream}/{self.partition}"


@dataclass(frozen=True, slots=True)
class GroupConfigValue:
    """A config that a group has itself."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class GroupConfigs:
    """The configs that a group has itself; others are the node's settings."""

    group: str
    configs: tuple[GroupConfigValue, ...]


@dataclass(frozen=True, slots=True)
class GroupConfigChange:
    """``value`` null: the node's setting holds again."""

    name: str
    value: str | None = None

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}={self.value}"


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """Where a group goes on in a partition."""

    stream: str
    partition: int
    committed_offset: int | None
    new_offset: int
    skipped: int
    """Records that are still there, and that it would have read."""
    repeated: int
    """Offsets that it reads once more."""
    note: str = ""
    """Why it is not quite what was asked for."""


@dataclass(frozen=True, slots=True)
class ShownChange:
    """A change as a reset with ``validate_only`` returned it."""

    stream: str
    partition: int
    committed_offset: int | None
    new_offset: int

    def __str__(self) -> str:
        return f"{self.stream}/{self.partition}"


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """What a reset changed, or would change."""

    changed: bool
    partitions: tuple[OffsetChange, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """Where a group is to go on. One of these is given."""

    earliest: bool
    latest: bool
    offset: int | None
    start_ms: int | None
    shift: int | None
    changes: tuple[ShownChange, ...] = ()

    def check(self) -> None:
        """Raises InvalidRequest."""
        given = (
            self.earliest or None,
            self.latest or None,
            self.offset,
            self.start_ms,
            self.shift,
            self.changes or None,
        )
        if sum(it is not None for it in given) != 1:
            raise InvalidRequest(
                "name one of to_earliest, to_latest, to_offset, to_ms, shift_by and changes"
            )


def change_of(
    tp: TopicPartition,
    committed: int | None,
    extent: tuple[int, int],
    target: Target,
    at_time: int | None = None,
) -> OffsetChange:
    """``extent``: where the log starts and ends; ``at_time``: the offset of a target's time.

    Raises InvalidRequest where the target is not in the partition.
    """
    offset, note = _offset_of(tp, committed, extent, target, at_time)
    skipped = repeated = 0
    if committed is not None:
        skipped = max(0, offset - max(committed, extent[0]))
        repeated = max(0, committed - offset)
    return OffsetChange(tp.stream, tp.partition, committed, offset, skipped, repeated, note)


def _offset_of(
    tp: TopicPartition,
    committed: int | None,
    extent: tuple[int, int],
    target: Target,
    at_time: int | None,
) -> tuple[int, str]:
    start, end = extent
    if target.earliest:
        return start, ""
    if target.latest:
        return end, ""
    if target.start_ms is not None:
        return (end, "no record is so late") if at_time in (None, end) else (at_time or 0, "")
    if target.offset is not None:
        if start <= target.offset <= end:
            return target.offset, ""
        raise InvalidRequest(f"{tp} has no offset {target.offset}, only {start} to {end}")
    if committed is None:
        raise InvalidRequest(f"nothing is committed in {tp} to shift from")
    wanted = committed + (target.shift or 0)
    if wanted < start:
        return start, f"the log begins at {start}"
    return (end, f"the log ends at {end}") if wanted > end else (wanted, "")


class GroupOperations(Operations):
    """Consumer groups. Each needs the right to the group that Kafka's request for it needs."""

    group = "groups"

    @operation("GET /groups")
    async def list(self, offset: int = 0, limit: int = 100, state: str = "") -> GroupPage:
        """List groups by name; with ``state`` those that are in it."""
        if not 0 <= limit <= LIST_MAX or offset < 0:
            raise InvalidRequest(f"limit: 0 to {LIST_MAX}; offset: 0 or more")
        await self._know_coordinators()
        found, missing = await self._service.coordinators.all()
        seen: list[GroupSummary] = []
        for number, it in enumerate(found, 1):
            if (not state or it.state.casefold() == state.casefold()) and self._sees(it.group):
                seen.append(it)
            if number % LOOKED_AT_ONCE == 0:
                await asyncio.sleep(0)
        page = tuple(ListedGroup(*it) for it in seen[offset : offset + limit])
        return GroupPage(len(seen), offset, page, tuple(missing))

    @operation("GET /groups/{group}", about=("group",))
    async def describe(self, group: str) -> GroupDescription:
        """Describe a group: members, committed offsets, lag."""
        self._check(Operation.DESCRIBE, group)
        await self._know_coordinators()
        known = await self._service.coordinators.known(group)
        offsets = {TopicPartition(it.stream, it.partition): it for it in self._of_today(known)}
        members = tuple(self._visible(it) for it in known.members)
        readers = {
            TopicPartition(tp.stream, tp.partition): it.member_id
            for it in members
            for tp in it.partitions
        }
        tps = sorted(offsets.keys() | readers.keys())
        states = await self._states(tps)
        partitions = tuple(
            _partition(tp, offsets.get(tp), states.get(tp), readers.get(tp)) for tp in tps
        )
        lags = [it.lag for it in partitions if it.committed_offset is not None]
        lag = sum(it or 0 for it in lags) if lags and None not in lags else None
        return GroupDescription(
            group,
            known.state,
            known.protocol_type,
            known.protocol,
            self._service.coordinators.node_of(group),
            members,
            partitions,
            lag,
            known.group_type,
        )

    @operation("DELETE /groups/{group}", about=("group",), act=True)
    async def delete(self, group: str, validate_only: bool = False) -> None:
        """Delete a group without members, with all its offsets. ``validate_only`` says whether that can be done."""
        self._check(Operation.DELETE, group)
        await self._know_coordinators()
        if validate_only:
            _check_empty(group, await self._service.coordinators.known(group))
        else:
            await self._service.coordinators.delete(group)

    @operation(
        "POST /groups/{group}/offsets/delete",
        about=("group", "offsets"),
        act=True,
        outcomes=_outcomes,
    )
    async def delete_offsets(
        self, group: str, offsets: tuple[StreamPartitions, ...], group_type: str = ""
    ) -> tuple[ForgottenOffset, ...]:
        """Have a group forget how far it has come in partitions. Its members must not read their streams.

        Needs READ of the streams, too. Each partition is by itself: the answer says of each whether it is forgotten.
        A share group must have no members. With ``group_type`` a group of another type is not found.
        """
        self._check(Operation.DELETE, group)
        await self._know_coordinators()
        if group_type and (await self._service.coordinators.known(group)).group_type != group_type:
            raise GroupNotFound(f"Group {group} is not a {group_type} group.")
        refused, wanted = dict[tuple[str, int | None], StreamlogError](), dict[PartitionId, None]()
        async for name, asked in cooperatively(_by_stream(offsets).items()):
            try:
                stream = self._readable(name)
            except StreamlogError as error:
                refused |= dict.fromkeys(((name, it) for it in asked or (None,)), error)
                continue
            count = len(stream.partitions)
            async for number in cooperatively(range(count) if asked is None else asked):
                if 0 <= number < count:
                    wanted[name, number] = None
                else:
                    refused[name, number] = PartitionNotFound(f"{name!r} has no partition {number}")
        for place in await self._service.coordinators.forget(group, tuple(wanted)):
            refused[place] = GroupSubscribed(f"members of group {group!r} read {place[0]!r}")
        return (
            *(ForgottenOffset(*place) for place in wanted if place not in refused),
            *(
                ForgottenOffset(*place, type(error).__name__, str(error))
                for place, error in refused.items()
            ),
        )

    @operation(
        "POST /groups/{group}/reset", about=("group", "streams", "partitions", "changes"), act=True
    )
    async def reset(
        self,
        group: str,
        streams: tuple[str, ...] = (),
        partitions: tuple[int, ...] = (),
        *,
        to_earliest: bool = False,
        to_latest: bool = False,
        to_offset: int | None = None,
        to_ms: int | None = None,
        shift_by: int | None = None,
        changes: tuple[ShownChange, ...] = (),
        validate_only: bool = False,
    ) -> OffsetReset:
        """Set where a group without members goes on: in all partitions of ``streams``, or in all it has committed in.

        It goes on at the log's start or end, at an offset, with the first record of the time ``to_ms`` or later, or
        ``shift_by`` records from where it is (negative: back). All offsets are changed, or none. ``validate_only``
        returns what would change. These ``changes`` are made as they were returned, unless the group has committed
        something else meanwhile; they may be asked for again.
        """
        target = Target(to_earliest, to_latest, to_offset, to_ms, shift_by, changes)
        target.check()
        if changes and (streams or partitions):
            raise InvalidRequest("changes: these name the streams and partitions")
        if partitions and len(streams) != 1:
            raise InvalidRequest("partitions: name the one stream that has them")
        self._check(Operation.READ, group)
        await self._know_coordinators()
        committed = await self._committed_by_empty(group, is_new=bool(streams or changes))
        tps = self._shown(group, changes, committed) or self._chosen(streams, partitions, committed)
        if not tps:
            raise GroupNotFound(f"group {group!r} has committed nothing; name the streams")
        states = await self._states(tps)
        shown = {TopicPartition(it.stream, it.partition): it.new_offset for it in changes}
        planned = [
            await self._change(
                tp,
                committed.get(tp),
                states.get(tp),
                Target(False, False, shown[tp], None, None) if changes else target,
            )
            for tp in tps
        ]
        if not validate_only:
            await self._service.coordinators.make(group)
            image = self._metadata.image
            wanted = [
                WantedOffset(
                    it.stream,
                    it.partition,
                    it.committed_offset,
                    it.new_offset,
                    image.stream(it.stream).stream_id,
                )
                for it in planned
            ]
            await self._service.coordinators.commit(group, wanted)
        return OffsetReset(not validate_only, tuple(planned))

    @operation(
        "POST /groups/{group}/offsets/set", about=("group", "offsets"), act=True, outcomes=_outcomes
    )
    async def set_offsets(
        self, group: str, offsets: tuple[StartOffset, ...]
    ) -> tuple[ForgottenOffset, ...]:
        """Set where a share group without members goes on in partitions. It is made if there is no group by that name.

        Needs READ of the streams, too. Each partition is by itself: the answer says of each whether it is set.
        """
        self._check(Operation.READ, group)
        check_reached(SHARE_GROUPS_LEVEL, self._metadata.image.level)
        await self._know_coordinators()
        refused, wanted = (
            dict[tuple[str, int | None], StreamlogError](),
            dict[TopicPartitionId, int](),
        )
        accepted: dict[tuple[str, int | None], None] = {}
        async for it in cooperatively(offsets):
            place = (it.stream, it.partition)
            try:
                stream = self._readable(it.stream)
                stream.partition(it.partition)
                if it.offset < 0:
                    raise InvalidRequest(f"{it.offset} is no offset")
            except StreamlogError as error:
                refused[place] = error
                continue
            wanted[stream.stream_id, it.partition] = it.offset
            accepted[place] = None
        if wanted:
            await self._service.coordinators.make(group)
            await self._service.coordinators.alter_starts(group, wanted)
        return (
            *(ForgottenOffset(*place) for place in accepted),
            *(
                ForgottenOffset(*place, type(error).__name__, str(error))
                for place, error in refused.items()
            ),
        )

    @operation("GET /groups/{group}/configs", about=("group",))
    async def configs(self, group: str) -> GroupConfigs:
        """List the configs of a share group, whether there is such a group or not."""
        self._check(Operation.DESCRIBE, group)
        await self._service.coordinators.make(group)
        own = await self._service.coordinators.configs(group)
        return GroupConfigs(group, tuple(GroupConfigValue(*it) for it in sorted(own.items())))

    @operation("POST /groups/{group}/configs", about=("group", "configs"), act=True)
    async def set_configs(
        self, group: str, configs: tuple[GroupConfigChange, ...], validate_only: bool = False
    ) -> None:
        """Set configs of a share group, or take them back (``value`` null). They hold from the next delivery on.

        Needs ALTER_CONFIGS of the cluster.
        """
        if self._access is not None:
            self._access.check_cluster(Operation.ALTER_CONFIGS)
        await self._service.coordinators.make(group)
        merged = await self._service.coordinators.configs(group)
        for it in configs:
            if it.value is None:
                if it.name not in GROUP_CONFIGS:
                    check_config(it.name, "")
                merged.pop(it.name, None)
            else:
                check_config(it.name, it.value)
                merged[it.name] = it.value
        check_together(merged, self._service.groups_settings)
        if not validate_only:
            await self._service.coordinators.set_configs(group, merged)

    def _check(self, right: Operation, group: str) -> None:
        """Raises GroupForbidden, whether there is such a group or not."""
        if self._access is not None:
            self._access.check_group(right, group)

    async def _know_coordinators(self) -> None:
        """Raises NotCoordinator where no controller says whether there are any."""
        is_newest = await self._service.freshness.catch_up()
        if not is_newest and OFFSETS_STREAM not in self._service.image.streams:
            raise NotCoordinator("this node cannot say just now whether there are groups")

    def _sees(self, group: str) -> bool:
        return self._access is None or self._access.sees_group(group)

    def _visible(self, member: GroupMember) -> GroupConsumer:
        streams = self._metadata.image.streams
        seen = tuple(AssignedPartition(*tp) for tp in member.partitions if tp.stream in streams)
        return GroupConsumer(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.host.removeprefix("/"),
            seen,
        )

    def _of_today(self, known: KnownGroup) -> Iterable[GroupOffset]:
        """Of streams that there are, that the caller may know of, and that no other has taken the name of."""
        streams = self._metadata.image.streams
        for it in known.offsets:
            stream = streams.get(it.stream)
            if stream is not None and it.stream_id in (NO_TOPIC_ID, stream.stream_id):
                yield it

    def _readable(self, name: str) -> StreamImage:
        """Raises StreamNotFound, TopicForbidden."""
        stream = self._metadata.image.stream(name)
        if self._access is not None:
            self._access.check_topic(Operation.READ, name)
        return stream

    async def _states(
        self, tps: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LeaderPartitionState]:
        streams = self._metadata.image.streams
        names = sorted({tp.stream for tp in tps})
        return await self._service.leaders.states([streams[it] for it in names if it in streams])

    async def _committed_by_empty(self, group: str, *, is_new: bool) -> dict[TopicPartition, int]:
        """What it has committed; ``is_new``: it need not be there yet. Raises GroupNotFound, GroupNotEmpty."""
        try:
            known = await self._service.coordinators.known(group)
        except GroupNotFound:
            if not is_new:
                raise
            return {}
        _check_empty(group, known)
        return {TopicPartition(it.stream, it.partition): it.offset for it in self._of_today(known)}

    def _shown(
        self,
        group: str,
        changes: Sequence[ShownChange],
        committed: Mapping[TopicPartition, int],
    ) -> Sequence[TopicPartition]:
        """Raises StalePartition unless what is committed is what was shown, or the new offset already."""
        found = []
        for it in changes:
            self._readable(it.stream).partition(it.partition)  # raises PartitionNotFound
            tp = TopicPartition(it.stream, it.partition)
            if committed.get(tp) not in (it.committed_offset, it.new_offset):
                raise StalePartition(
                    f"group {group!r} has committed something in {tp} meanwhile; nothing is changed, ask again"
                )
            found.append(tp)
        if len(set(found)) != len(found):
            raise InvalidRequest("changes: a partition is named twice")
        return found

    def _chosen(
        self,
        streams: Sequence[str],
        numbers: Sequence[int],
        committed: Iterable[TopicPartition],
    ) -> Sequence[TopicPartition]:
        """Raises StreamNotFound, TopicForbidden, PartitionNotFound."""
        if not streams:
            found = sorted(committed)
            for name in dict.fromkeys(tp.stream for tp in found):
                self._readable(name)
            return found
        chosen = []
        for name in sorted(set(streams)):
            stream = self._readable(name)
            wanted = sorted(set(numbers)) or range(len(stream.partitions))
            for it in wanted:
                stream.partition(it)  # raises PartitionNotFound
            chosen += [TopicPartition(name, it) for it in wanted]
        return chosen

    async def _change(
        self,
        tp: TopicPartition,
        committed: int | None,
        state: LeaderPartitionState | None,
        target: Target,
    ) -> OffsetChange:
        if state is None:
            raise NotLeader(f"the leader of {tp} does not answer")
        at_time = None
        if target.start_ms is not None:
            query = PassageQuery(start_ms=target.start_ms, limit=0)
            at_time = (await self._service.leaders.passage(tp, query)).start_offset
        extent = (state.log_start_offset, state.high_watermark)
        return change_of(tp, committed, extent, target, at_time)


def _check_empty(group: str, known: KnownGroup) -> None:
    """Raises GroupNotEmpty, with the members' names and the remedy."""
    if not known.members:
        return
    named = [member.name for member in known.members[:MEMBERS_NAMED]]
    more = len(known.members) - len(named)
    names = ", ".join((*named, f"and {more} more") if more else named)
    count = f"{len(known.members)} member{'s' if len(known.members) > 1 else ''}"
    raise GroupNotEmpty(
        f"group {group!r} has {count} ({names}); stop them first"
        " (one that was killed is gone after its session.timeout.ms)"
    )


def _by_stream(offsets: Iterable[StreamPartitions]) -> dict[str, tuple[int, ...] | None]:
    """Each stream once, however often it is named."""
    found = dict[str, dict[int, None] | None]()
    for it in offsets:
        known = found.setdefault(it.stream, {})
        if it.partitions is None:
            found[it.stream] = None
        elif known is not None:
            known |= dict.fromkeys(it.partitions)
    return {name: None if it is None else tuple(it) for name, it in found.items()}


def _partition(
    tp: TopicPartition,
    committed: GroupOffset | None,
    state: LeaderPartitionState | None,
    member_id: str | None,
) -> GroupPartition:
    end = None if state is None else state.high_watermark
    lag = None
    if committed is not None and end is not None:
        lag = max(0, consumer_lag(end, committed.offset) - committed.done)
    return GroupPartition(
        tp.stream,
        tp.partition,
        None if committed is None else committed.offset,
        end,
        lag,
        None if committed is None or committed.leader_epoch < 0 else committed.leader_epoch,
        "" if committed is None else committed.metadata,
        member_id,
    )
