"""The coordinators of consumer groups: on this node, or asked for over the socket.

A group's coordinator is the leader of the partition of ``__consumer_offsets`` that its name belongs to, so
requests find it as they find any leader.
"""

import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from streamlog.control.leaders.coordinator_listing import (
    LIST_TIMEOUT_S,
    LISTED_AT_ONCE,
    NAME_SHOWN,
    CoordinatorListing,
    not_coordinated,
)
from streamlog.control.leaders.leader_router import LeaderRouter
from streamlog.control.leaders.node_requests import Fields, NodeAnswer, NodeRequests
from streamlog.coordination.effects import Now
from streamlog.coordination.keys import KEY_BYTES_MAX, is_key, partition_of
from streamlog.coordination.reply import DelayedReply
from streamlog.errors import (
    CorruptData,
    FencedShareState,
    GroupNotEmpty,
    GroupNotFound,
    InvalidGroupName,
    InvalidRequest,
    MalformedFrame,
    NotLeader,
    Overloaded,
    PartitionNotFound,
    RequestTimedOut,
    StalePartition,
    StreamlogError,
    UnknownTopicId,
)
from streamlog.groups.coordinator import Coordinator
from streamlog.groups.group import CLASSIC_TYPE
from streamlog.groups.records import NOT_SET, ShareState, StateKey, TopicPartitionId
from streamlog.groups.requests import CommitRequest, GroupCaller, OffsetToCommit, PartitionId
from streamlog.groups.service import GroupProgress, GroupProgressPage, GroupService
from streamlog.groups.shares.share_states import ShareStateAnswer, ShareStates
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.stream.stream_config import OFFSETS_STREAM
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from streamlog.wire.consumer_protocol import PROTOCOL_TYPE, read_assignment
from streamlog.wire.error_codes import ErrorCode

NO_EPOCH: Final = -1

T = TypeVar("T")

_TAKEN: Final = frozenset(
    {
        ErrorCode.non_empty_group,
        ErrorCode.unknown_member_id,
        ErrorCode.illegal_generation,
        ErrorCode.rebalance_in_progress,
    }
)
"""What a request from outside is told while the group has members."""


class GroupSummary(NamedTuple):
    """A group in a list."""

    group: str
    state: str
    protocol_type: str
    members: int
    group_type: str = CLASSIC_TYPE
    """``consumer``: of the protocol of KIP-848."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A consumer of a group, and what it reads."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]

    @property
    def name(self) -> str:
        """As a sentence calls it."""
        return f"{self.instance_id or self.client_id or self.member_id} at {self.host.removeprefix('/')}"


class GroupOffset(NamedTuple):
    """How far a group has come in a partition."""

    stream: str
    partition: int
    offset: int
    leader_epoch: int
    """Of the record before it, as the group has told; -1: not told."""
    metadata: str
    stream_id: UUID
    """Of the stream when it was committed; all zeros: not told."""
    done: int = 0
    """Of a share group: records from the offset on that it is done with."""


class KnownGroup(NamedTuple):
    """A group as its coordinator knows it."""

    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]
    offsets: tuple[GroupOffset, ...]
    group_type: str = CLASSIC_TYPE


class WantedOffset(NamedTuple):
    """``before`` is what has to be committed still; None: nothing."""

    stream: str
    partition: int
    before: int | None
    offset: int
    stream_id: UUID


def error_of(code: ErrorCode, group: str) -> StreamlogError:
    """What a coordinator's code means to the caller of an operation."""
    elsewhere = not_coordinated(code, f"group {group!r}")
    if elsewhere is not None:
        return elsewhere
    if code in _TAKEN:
        return GroupNotEmpty(f"group {group!r} has members; stop them first")
    if code is ErrorCode.group_id_not_found:
        return GroupNotFound(f"there is no group {group!r}")
    if code is ErrorCode.invalid_group_id:
        return InvalidGroupName(
            f"{group[:NAME_SHOWN]!r} is no name that a group may have: it has 1 to {KEY_BYTES_MAX} bytes"
        )
    if code is ErrorCode.unknown_server_error:
        return StreamlogError(f"group {group!r}: its coordinator cannot write that")
    if code is ErrorCode.fenced_state_epoch or code is ErrorCode.fenced_leader_epoch:
        return FencedShareState(f"group {group!r}: another leader has taken the state over")
    if code is ErrorCode.unknown_topic_id:
        return UnknownTopicId(f"group {group!r}: its coordinator does not know the topic")
    if code is ErrorCode.unknown_topic_or_partition:
        return PartitionNotFound(f"group {group!r}: its coordinator does not know the topic")
    if code is ErrorCode.policy_violation:
        return Overloaded("the node keeps as many groups or offsets as its settings allow")
    return InvalidRequest(f"group {group!r}: {code.name}")


class LocalCoordinators:
    """What this node answers about the groups that it coordinates. Raises NotLeader for others."""

    def __init__(self, groups: GroupService | None) -> None:
        """``groups``: None on a node that coordinates none."""
        self._groups = groups

    def register(self, nodes: NodeRequests) -> None:
        """Have other nodes' requests answered."""
        nodes.register("GROUPS", self._list)
        nodes.register("GROUPS.PROGRESS", self._progress)
        nodes.register("GROUP", self._group)
        nodes.register("GROUP.DELETE", self._delete)
        nodes.register("GROUP.COMMIT", self._commit)
        nodes.register("GROUP.FORGET", self._forget)
        nodes.register("SHARE.TAKE_OVER", self._take_over)
        nodes.register("SHARE.SAVE", self._save)
        nodes.register("SHARE.ALTER", self._alter)
        nodes.register("GROUP.CONFIGS", self._configs)
        nodes.register("GROUP.SET_CONFIGS", self._set_configs)

    async def make(self, group: str) -> None:
        """Have there be a coordinator of the group: the first one needs ``__consumer_offsets`` to be created."""
        await self._service().find(group)

    def listed(self, after: str, limit: int) -> list[GroupSummary]:
        """The first ones by name after that. Raises NotLeader while some are not known yet."""
        found: list[GroupSummary] = []
        for coordinator in self._service().coordinators():
            if not isinstance(coordinator, Coordinator):
                raise error_of(coordinator, "")
            found += (
                GroupSummary(
                    it.name, it.shown_state, it.shown_protocol_type, it.member_count, it.group_type
                )
                for it in coordinator.groups()
                if it.name > after
            )
        return sorted(found)[:limit]

    async def known(self, group: str) -> KnownGroup:
        """Raises GroupNotFound. Nothing older than when it is asked for is told."""
        await self._done(group, self._service().confirm(group))
        coordinator = self._service().coordinator(group)
        if isinstance(coordinator, ErrorCode):
            raise error_of(coordinator, group)
        described, offsets = coordinator.describe(group), coordinator.fetch(group, None)
        if described is None:
            raise error_of(ErrorCode.group_id_not_found, group)
        consumers = coordinator.describe_consumers(group)
        names = self._service().topic_names
        is_consumer = described.protocol_type == PROTOCOL_TYPE
        return KnownGroup(
            described.state,
            described.protocol_type,
            described.protocol if consumers is None else consumers.assignor,
            tuple(
                GroupMember(
                    it.member_id,
                    it.instance_id,
                    it.client_id,
                    it.client_host,
                    _assigned(it.assignment) if is_consumer else (),
                )
                for it in described.members
            )
            if consumers is None
            else tuple(
                GroupMember(
                    it.member_id,
                    it.metadata.instance_id,
                    it.metadata.client_id,
                    it.metadata.client_host,
                    tuple(
                        TopicPartition(name, number)
                        for topic_id, number in sorted(it.current.assigned)
                        if (name := names.get(topic_id.bytes)) is not None
                    ),
                )
                for it in consumers.members
            ),
            tuple(
                GroupOffset(*place, it.offset, it.leader_epoch, it.metadata, it.topic_id)
                for place, found in sorted(offsets.items())
                if (it := found.committed) is not None
            )
            + self._starts(coordinator, group),
            described.group_type,
        )

    async def delete(self, group: str) -> None:
        """Raises GroupNotFound, GroupNotEmpty. A group with an empty name is one that only commits."""
        reply = self._service().call(
            group,
            lambda coordinator, token, now: coordinator.delete_group(group, token, now),
            may_be_empty=True,
        )
        code = await self._done(group, reply)
        if code is not ErrorCode.none:
            raise error_of(code, group)

    async def commit(self, group: str, wanted: Sequence[WantedOffset]) -> None:
        """All of them or none. Raises StalePartition where something else is committed by now, GroupNotEmpty."""
        coordinator = self._service().coordinator(group)
        if isinstance(coordinator, ErrorCode):
            raise error_of(coordinator, group)
        places = [(it.stream, it.partition) for it in wanted]
        starts = {(it.stream, it.partition): it.offset for it in self._starts(coordinator, group)}
        for it, found in zip(wanted, coordinator.fetch(group, places).values(), strict=True):
            place = (it.stream, it.partition)
            committed = starts.get(place) if found.committed is None else found.committed.offset
            if committed != it.before:
                raise StalePartition(
                    f"group {group!r} has committed {committed} in {it.stream}/{it.partition} meanwhile;"
                    " nothing is changed, ask again"
                )
        if _is_share(coordinator, group):
            await self.alter_starts(
                group, {(it.stream_id, it.partition): it.offset for it in wanted}
            )
            return
        offsets = {
            (it.stream, it.partition): OffsetToCommit(it.offset, NO_EPOCH, "", it.stream_id)
            for it in wanted
        }
        request = CommitRequest(group, GroupCaller(""), offsets)
        reply = self._service().call(
            group, lambda coordinator, token, now: coordinator.commit(request, token, now)
        )
        for code in (await self._done(group, reply)).values():
            if code is not ErrorCode.none:
                raise error_of(code, group)

    async def forget(self, group: str, places: Sequence[PartitionId]) -> set[PartitionId]:
        """Those that stay, because members of the group read the stream. Raises GroupNotFound; GroupNotEmpty of
        a group whose members are no consumers, and of a share group with members.
        """
        coordinator = self._service().coordinator(group)
        if not isinstance(coordinator, ErrorCode) and _is_share(coordinator, group):
            names = self._service().topic_names
            asked = set(places)
            states = coordinator.share_states.states(group)
            gone = [
                it
                for it in (() if isinstance(states, ErrorCode) else states)
                if (names.get(it[0].bytes), it[1]) in asked
            ]
            await self._of_shares(group, lambda it, token, now: it.delete(group, gone, token, now))
            return set()
        reply = self._service().call(
            group,
            lambda coordinator, token, now: coordinator.delete_offsets(group, places, token, now),
        )
        result: Mapping[PartitionId, ErrorCode] = await self._done(group, reply)
        for code in result.values():
            if code not in (ErrorCode.none, ErrorCode.group_subscribed_to_topic):
                raise error_of(code, group)
        return {place for place, code in result.items() if code is not ErrorCode.none}

    # Share groups

    async def take_over(self, key: StateKey, leader_epoch: int, owner: UUID) -> ShareStateAnswer:
        """See ``ShareStates.take_over``. Raises GroupNotFound, UnknownTopicId, FencedShareState."""
        answer: ShareStateAnswer = await self._of_shares(
            key.group, lambda it, token, now: it.take_over(key, leader_epoch, owner, token, now)
        )
        return answer

    async def save(self, key: StateKey, state: ShareState) -> ShareStateAnswer:
        """See ``ShareStates.save``. Raises GroupNotFound, FencedShareState."""
        answer: ShareStateAnswer = await self._of_shares(
            key.group, lambda it, token, now: it.save(key, state, token, now)
        )
        return answer

    async def alter_starts(self, group: str, starts: Mapping[TopicPartitionId, int]) -> None:
        """See ``ShareStates.alter``. Raises GroupNotFound for one of another kind, GroupNotEmpty, PartitionNotFound."""
        await self._of_shares(group, lambda it, token, now: it.alter(group, starts, token, now))

    async def configs(self, group: str) -> dict[str, str]:
        """Of a group, whether there is one or not."""
        await self._done(group, self._service().confirm(group))
        coordinator = self._service().coordinator(group)
        if isinstance(coordinator, ErrorCode):
            raise error_of(coordinator, group)
        return dict(coordinator.share_states.configs(group))

    async def set_configs(self, group: str, configs: Mapping[str, str]) -> None:
        """All of them, instead of those there were."""
        await self._of_shares(
            group, lambda it, token, now: it.set_configs(group, configs, token, now)
        )

    def _starts(self, coordinator: Coordinator, group: str) -> tuple[GroupOffset, ...]:
        """Where a share group goes on."""
        states = coordinator.share_states.states(group)
        names = self._service().topic_names
        return tuple(
            GroupOffset(
                name, number, it.start_offset, it.leader_epoch, "", topic_id,
                it.end_offset - it.start_offset - it.pending,
            )
            for (topic_id, number), it in sorted(() if isinstance(states, ErrorCode) else states.items())
            if it.start_offset != NOT_SET and (name := names.get(topic_id.bytes)) is not None
        )  # fmt: skip

    async def _of_shares(
        self, group: str, ask: Callable[[ShareStates, DelayedReply, Now], None]
    ) -> Any:
        reply = self._service().call(
            group, lambda it, token, now: it.of_shares(lambda states: ask(states, token, now))
        )
        result = await self._done(group, reply)
        if isinstance(result, ShareStateAnswer) and result.error is not ErrorCode.none:
            raise error_of(result.error, group)
        return result

    def _service(self) -> GroupService:
        if self._groups is None:
            raise NotLeader("this node coordinates no groups")
        return self._groups

    async def _done(self, group: str, reply: DelayedReply | ErrorCode) -> Any:
        """The result. Raises what an error code of the whole request means, RequestTimedOut."""
        if isinstance(reply, ErrorCode):
            raise error_of(reply, group)
        try:
            result = await reply.given(self._service().settings.commit_timeout_ms / 1000)
        except TimeoutError:
            raise RequestTimedOut(f"group {group!r}: it may be done yet") from None
        if isinstance(result, ErrorCode) and result is not ErrorCode.none:
            raise error_of(result, group)
        return result

    # For other nodes

    async def _list(self, fields: Fields) -> NodeAnswer:
        rows = self.listed(str(fields["after"]), min(int(fields["limit"]), LISTED_AT_ONCE))
        # A node of 0.1.0 knows of no types; it is never asked about another one.
        told = [it if it.group_type != CLASSIC_TYPE else it[:-1] for it in rows]
        return NodeAnswer({"groups": told})

    async def _progress(self, fields: Fields) -> NodeAnswer:
        found = await self._service().progress(int(fields["partitions_max"]))
        rows = [
            (*it[:3], [(*tp, offset) for tp, offset in it.committed.items()]) for it in found.groups
        ]
        return NodeAnswer({"groups": rows, "omitted": found.omitted})

    async def _group(self, fields: Fields) -> NodeAnswer:
        found = await self.known(str(fields["group"]))
        members = [asdict(it) for it in found.members]
        offsets = [
            (*it[:-2], str(it.stream_id), *([it.done] if it.done else ())) for it in found.offsets
        ]
        fields = {**found._asdict(), "members": members, "offsets": offsets}
        if found.group_type == CLASSIC_TYPE:
            del fields["group_type"]
        return NodeAnswer(fields)

    async def _delete(self, fields: Fields) -> NodeAnswer:
        await self.delete(str(fields["group"]))
        return NodeAnswer({})

    async def _commit(self, fields: Fields) -> NodeAnswer:
        wanted = [
            WantedOffset(stream, number, before, offset, UUID(stream_id))
            for stream, number, before, offset, stream_id in fields["offsets"]
        ]
        await self.commit(str(fields["group"]), wanted)
        return NodeAnswer({})

    async def _forget(self, fields: Fields) -> NodeAnswer:
        places = [(str(stream), int(number)) for stream, number in fields["places"]]
        return NodeAnswer({"subscribed": sorted(await self.forget(str(fields["group"]), places))})

    async def _take_over(self, fields: Fields) -> NodeAnswer:
        epoch, owner = int(fields["leader_epoch"]), UUID(fields["owner"])
        return _told(await self.take_over(_key_of(fields), epoch, owner))

    async def _save(self, fields: Fields) -> NodeAnswer:
        return _told(await self.save(_key_of(fields), _state_of(fields["state"])))

    async def _alter(self, fields: Fields) -> NodeAnswer:
        starts = {(UUID(topic), int(number)): int(at) for topic, number, at in fields["starts"]}
        await self.alter_starts(str(fields["group"]), starts)
        return NodeAnswer({})

    async def _configs(self, fields: Fields) -> NodeAnswer:
        return NodeAnswer({"configs": await self.configs(str(fields["group"]))})

    async def _set_configs(self, fields: Fields) -> NodeAnswer:
        configs = {str(name): str(text) for name, text in fields["configs"].items()}
        await self.set_configs(str(fields["group"]), configs)
        return NodeAnswer({})


def _is_share(coordinator: Coordinator, group: str) -> bool:
    return not isinstance(coordinator.share_states.states(group), ErrorCode)


def _key_of(fields: Fields) -> StateKey:
    return StateKey(str(fields["group"]), UUID(fields["topic_id"]), int(fields["partition"]))


def _key_fields(key: StateKey) -> dict[str, Any]:
    return {"topic_id": str(key.topic_id), "partition": key.partition}


def _state_of(row: Sequence[Any]) -> ShareState:
    epoch, owner, version, start, end, pending, delivery = row
    return ShareState(epoch, UUID(owner), version, start, end, pending, base64.b64decode(delivery))


def _state_fields(state: ShareState) -> tuple[Any, ...]:
    delivery = base64.b64encode(state.delivery).decode()
    return (*state[:1], str(state.owner), *state[2:-1], delivery)


def _told(answer: ShareStateAnswer) -> NodeAnswer:
    state = None if answer.state is None else _state_fields(answer.state)
    return NodeAnswer({"state": state, "configs": dict(answer.configs)})


def _answer_of(answer: NodeAnswer) -> ShareStateAnswer:
    row, configs = answer.fields["state"], dict(answer.fields["configs"])
    state = None if row is None else _state_of(row)
    return ShareStateAnswer(ErrorCode.none, state, configs)


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    try:
        return read_assignment(assignment)
    except MalformedFrame:
        return ()


def _progress_of(fields: Fields) -> GroupProgressPage:
    groups = [
        GroupProgress(
            str(group_id),
            str(state),
            int(member_count),
            {TopicPartition(stream, number): offset for stream, number, offset in committed},
        )
        for group_id, state, member_count, committed in fields["groups"]
    ]
    return GroupProgressPage(groups, int(fields["omitted"]))


def _known_of(answer: NodeAnswer) -> KnownGroup:
    fields: dict[str, Any] = dict(answer.fields)
    members = tuple(
        GroupMember(**{**it, "partitions": tuple(TopicPartition(*tp) for tp in it["partitions"])})
        for it in fields.pop("members")
    )
    offsets = tuple(
        GroupOffset(stream, number, offset, leader_epoch, metadata, UUID(stream_id), *done)
        for stream, number, offset, leader_epoch, metadata, stream_id, *done in fields.pop(
            "offsets"
        )
    )
    return KnownGroup(**fields, members=members, offsets=offsets)


class CoordinatorRouter:
    """Wherever a group's coordinator is."""

    def __init__(
        self,
        node_id: NodeId,
        here: LocalCoordinators,
        nodes: NodeRequests,
        leaders: LeaderRouter,
        *,
        image: Callable[[], MetadataImage],
    ) -> None:
        self._node_id = node_id
        self._here = here
        self._nodes = nodes
        self._leaders = leaders
        self._image = image
        self._listing = CoordinatorListing(
            node_id,
            nodes,
            image,
            stream=OFFSETS_STREAM,
            verb="GROUPS",
            here=here.listed,
            name_of=lambda it: it.group,
            decode=lambda fields: [GroupSummary(*row) for row in fields["groups"]],
        )

    def node_of(self, group: str) -> NodeId | None:
        """The node that coordinates it; None: none does just now."""
        place = self._place(group)
        leader = self._image().stream(place.stream).partition(place.partition).leader
        return None if leader == NO_LEADER else leader

    async def make(self, group: str) -> None:
        """See ``LocalCoordinators.make``."""
        if OFFSETS_STREAM not in self._image().streams:
            await self._here.make(group)

    async def all(self) -> tuple[list[GroupSummary], list[NodeId]]:
        """All groups by name, and the nodes whose groups are not known."""
        return await self._listing.all()

    async def progress_at(
        self, node_id: NodeId, partitions_max: int, *, timeout_s: float = LIST_TIMEOUT_S
    ) -> GroupProgressPage:
        """How far the groups of that node have come, as ``progress_of`` limits them. Told at once: after an
        election it may be what was true a moment ago. Raises StreamlogError.
        """
        fields = {"partitions_max": partitions_max}
        answer = await self._nodes.ask(node_id, "GROUPS.PROGRESS", fields, timeout_s=timeout_s)
        try:
            return _progress_of(answer.fields)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptData(f"another node's answer does not decode: {error!r}") from None

    async def known(self, group: str) -> KnownGroup:
        """Raises GroupNotFound."""
        return await self._at(
            group, "GROUP", {}, lambda: self._here.known(group), _known_of, repeatable=True
        )

    async def delete(self, group: str) -> None:
        """Raises GroupNotFound, GroupNotEmpty."""
        await self._at(
            group,
            "GROUP.DELETE",
            {},
            lambda: self._here.delete(group),
            _nothing,
            may_be_empty=True,
        )

    async def commit(self, group: str, wanted: Sequence[WantedOffset]) -> None:
        """See ``LocalCoordinators.commit``."""
        rows = [(*it[:-1], str(it.stream_id)) for it in wanted]
        await self._at(
            group,
            "GROUP.COMMIT",
            {"offsets": rows},
            lambda: self._here.commit(group, wanted),
            _nothing,
        )

    async def forget(self, group: str, places: Sequence[PartitionId]) -> set[PartitionId]:
        """See ``LocalCoordinators.forget``."""
        return await self._at(
            group,
            "GROUP.FORGET",
            {"places": places},
            lambda: self._here.forget(group, places),
            lambda answer: {(str(it[0]), int(it[1])) for it in answer.fields["subscribed"]},
        )

    # Share groups: see ``LocalCoordinators``. Each may be asked again: that does what once does.

    async def take_over(self, key: StateKey, leader_epoch: int, owner: UUID) -> ShareStateAnswer:
        return await self._at(
            key.group,
            "SHARE.TAKE_OVER",
            {**_key_fields(key), "leader_epoch": leader_epoch, "owner": str(owner)},
            lambda: self._here.take_over(key, leader_epoch, owner),
            _answer_of,
            repeatable=True,
        )

    async def save(self, key: StateKey, state: ShareState) -> ShareStateAnswer:
        return await self._at(
            key.group,
            "SHARE.SAVE",
            {**_key_fields(key), "state": _state_fields(state)},
            lambda: self._here.save(key, state),
            _answer_of,
            repeatable=True,
        )

    async def alter_starts(self, group: str, starts: Mapping[TopicPartitionId, int]) -> None:
        rows = [(str(topic), number, offset) for (topic, number), offset in starts.items()]
        await self._at(
            group,
            "SHARE.ALTER",
            {"starts": rows},
            lambda: self._here.alter_starts(group, starts),
            _nothing,
            repeatable=True,
        )

    async def configs(self, group: str) -> dict[str, str]:
        return await self._at(
            group,
            "GROUP.CONFIGS",
            {},
            lambda: self._here.configs(group),
            lambda answer: dict(answer.fields["configs"]),
            repeatable=True,
        )

    async def set_configs(self, group: str, configs: Mapping[str, str]) -> None:
        await self._at(
            group,
            "GROUP.SET_CONFIGS",
            {"configs": dict(configs)},
            lambda: self._here.set_configs(group, configs),
            _nothing,
            repeatable=True,
        )

    def _place(self, group: str, *, may_be_empty: bool = False) -> TopicPartition:
        if not is_key(group) and not (may_be_empty and group == ""):
            raise error_of(ErrorCode.invalid_group_id, group)
        stream = self._image().streams.get(OFFSETS_STREAM)
        if stream is None or not stream.partitions:
            raise error_of(ErrorCode.group_id_not_found, group)
        return TopicPartition(OFFSETS_STREAM, partition_of(group, len(stream.partitions)))

    async def _at(
        self,
        group: str,
        verb: str,
        fields: dict[str, Any],
        here: Callable[[], Awaitable[T]],
        decode: Callable[[NodeAnswer], T],
        *,
        repeatable: bool = False,
        may_be_empty: bool = False,
    ) -> T:
        return await self._leaders.at_leader(
            self._place(group, may_be_empty=may_be_empty),
            verb,
            {"group": group, **fields},
            here=here,
            decode=decode,
            repeatable=repeatable,
        )


def _nothing(_: NodeAnswer) -> None:
    """An act answers no more than that it is done."""
