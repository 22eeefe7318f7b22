"""OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete: how far consumer groups have come."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from streamlog.acl.rules import Operation
from streamlog.control.groups import ForgottenOffset, StreamPartitions
from streamlog.coordination.effects import TransactionPart
from streamlog.coordination.reply import DelayedReply
from streamlog.coordination.shard import code_of_failure
from streamlog.errors import NotLeader, StreamlogError
from streamlog.groups.offsets import Outcome
from streamlog.groups.offsets_topic import GroupShard
from streamlog.groups.records import NO_TOPIC_ID
from streamlog.groups.requests import (
    CommitRequest,
    FoundOffset,
    GroupCaller,
    OffsetToCommit,
    PartitionId,
    TransactionCommit,
)
from streamlog.kafka.auth.resource_checks import (
    forbidden_topics,
    group_refusal,
    stream_named,
    transactional_id_refusal,
)
from streamlog.kafka.context import Context, Requester
from streamlog.kafka.handlers.coordinators import result_of
from streamlog.kafka.read_barrier import PartitionLookup
from streamlog.kafka.refusal import group_code_of
from streamlog.kafka.transaction_support import why_no_transactions
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.read_barrier import catch_up
from streamlog.model import TopicPartition
from streamlog.wire.api_messages import Message
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.errors import error_named

UNKNOWN_PARTITION = ErrorCode.unknown_topic_or_partition


async def offset_commit(
    request: Message, version: int, context: Context, asker: Requester
) -> Message:
    """OffsetCommit (8), versions 2 to 10: how far a group has come, partition by partition.

    Answered when it is committed as any acknowledged record is. Without a generation (-1) it is for
    who assigns partitions itself, and holds while the group has no members.

        v2-4  how long it is to be kept
        v6    the leader epoch of what was read last (KIP-320)
        v7    static members (KIP-345)
        v9    members of the consumer protocol, with their epochs (KIP-848)
        v10   topics by their ids
    """
    if version >= _TOPIC_IDS_FROM:
        refusal = group_refusal(Operation.READ, request["group_id"], context)
        if refusal is not ErrorCode.none:
            return {"topics": _commits_by_id(request["topics"], refusal)}
        await _know_ids(request["topics"], context)
        named, unknown = _named(request["topics"], context)
        answer = await _commit({**request, "topics": named}, version, context, asker)
        strange = _commits_by_id(unknown, ErrorCode.unknown_topic_id)
        return {"topics": [*_with_ids(answer["topics"], named), *strange]}
    return await _commit(request, version, context, asker)


async def _commit(request: Message, version: int, context: Context, asker: Requester) -> Message:
    refusal = group_refusal(Operation.READ, request["group_id"], context)
    if refusal is not ErrorCode.none:
        return _commit_failed(request, refusal)

    async def keep(wanted: CommitRequest) -> Outcome | ErrorCode:
        reply = context.groups.call(
            wanted.group,
            lambda coordinator, token, now: coordinator.commit(wanted, token, now),
            may_be_empty=True,
        )
        timeout_ms = context.groups.settings.commit_timeout_ms
        result: Outcome | ErrorCode = await result_of(reply, asker.poll, timeout_ms)
        return result

    return await _keep_known(request, version, context, keep)


async def _keep_known(
    request: Message,
    version: int,
    context: Context,
    keep: Callable[[CommitRequest], Awaitable[Outcome | ErrorCode]],
) -> Message:
    """The answer to a commit: ``keep`` has those offsets kept whose partitions there are, and the caller may read."""
    forbidden = forbidden_topics((it["name"] for it in request["topics"]), context)
    try:
        await _know_topics(request, forbidden, context)
    except NotLeader:
        return _commit_failed(request, ErrorCode.coordinator_not_available)
    wanted = _commit_request(request, version, context.metadata.image, forbidden)
    result = await keep(wanted) if wanted.offsets else {}
    if isinstance(result, ErrorCode):
        result = dict.fromkeys(wanted.offsets, result)
    return {
        "topics": [
            {"name": topic["name"], "partitions": list(_commit_codes(topic, result, forbidden))}
            for topic in request["topics"]
        ]
    }


def _commit_failed(request: Message, error: ErrorCode) -> Message:
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    {"partition_index": it["partition_index"], "error_code": error}
                    for it in topic["partitions"]
                ],
            }
            for topic in request["topics"]
        ]
    }


async def _know_topics(request: Message, forbidden: set[str], context: Context) -> None:
    """Raises NotLeader where no controller says whether there is such a partition."""
    lookup = PartitionLookup(context)
    for topic in request["topics"]:
        if topic["name"] not in forbidden:
            for it in topic["partitions"]:
                await lookup.look_up(TopicPartition(topic["name"], it["partition_index"]))


_TOPIC_IDS_FROM: Final = 10
_EPOCHS_FROM: Final = 9


async def _know_ids(topics: Iterable[Message], context: Context) -> None:
    """What has just been made may not have come here yet."""
    image = context.metadata.image
    if any(stream_named(it["topic_id"], image) is None for it in topics):
        await catch_up(context.metadata)


def _named(
    topics: Iterable[Message], context: Context
) -> tuple[list[dict[str, Any]], list[Message]]:
    """Each with its name, too; and those whose ids are of no topic that the caller may know of."""
    named, unknown = [], []
    for topic in topics:
        name = stream_named(topic["topic_id"], context.metadata.image)
        if name is None or (context.access is not None and not context.access.finds(name)):
            unknown.append(topic)
        else:
            named.append({**topic, "name": name})
    return named, unknown


def _with_ids(
    topics: Iterable[dict[str, Any]], named: Iterable[dict[str, Any]]
) -> list[dict[str, Any]]:
    ids = {it["name"]: it["topic_id"] for it in named}
    return [
        {"topic_id": ids[it["name"]], "partitions": it["partitions"]}
        for it in topics
        if it["name"] in ids
    ]


def _commits_by_id(topics: Iterable[Message], error: ErrorCode) -> list[dict[str, Any]]:
    return [
        {
            "topic_id": topic["topic_id"],
            "partitions": [
                {"partition_index": it["partition_index"], "error_code": error}
                for it in topic["partitions"]
            ],
        }
        for topic in topics
    ]


def _commit_request(
    request: Message, version: int, image: MetadataImage, forbidden: set[str]
) -> CommitRequest:
    """Of the partitions that there are, and that the caller may read."""
    offsets: dict[PartitionId, OffsetToCommit] = {}
    for topic in request["topics"]:
        name = topic["name"]
        stream = None if name in forbidden else image.streams.get(name)
        for it in topic["partitions"]:
            index = it["partition_index"]
            if stream is not None and 0 <= index < len(stream.partitions):
                offsets[topic["name"], index] = OffsetToCommit(
                    it["committed_offset"],
                    it.get("committed_leader_epoch", -1),
                    it["committed_metadata"] or "",
                    stream.stream_id,
                )
    caller = GroupCaller(
        request["member_id"],
        request.get("group_instance_id"),
        request["generation_id_or_member_epoch"],
    )
    retention_ms = request.get("retention_time", -1)
    knows_epochs = version >= _EPOCHS_FROM
    return CommitRequest(request["group_id"], caller, offsets, retention_ms, knows_epochs)


def _commit_codes(topic: Message, result: Outcome, forbidden: set[str]) -> list[dict[str, Any]]:
    unknown = (
        ErrorCode.topic_authorization_failed if topic["name"] in forbidden else UNKNOWN_PARTITION
    )
    return [
        {
            "partition_index": it["partition_index"],
            "error_code": result.get((topic["name"], it["partition_index"]), unknown),
        }
        for it in topic["partitions"]
    ]


_TRANSACTIONS_2_FROM: Final = 5
_MEMBERS_FROM: Final = 3
_ABORTABLE_FROM: Final = 4
_PASSING: Final = frozenset(
    {
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.concurrent_transactions,
        ErrorCode.network_exception,
    }
)
"""Errors of a transaction's coordinator that pass by themselves. Producers of all versions ask again for
COORDINATOR_LOAD_IN_PROGRESS, and look for no other coordinator of the group."""


async def txn_offset_commit(
    request: Message, version: int, context: Context, asker: Requester
) -> Message:
    """TxnOffsetCommit (28), versions 0 to 5: how far a group has come, once a producer's transaction is committed.

    The group's coordinator has the transaction's coordinator say that the transaction is open, and has this
    partition, before it writes that. Until the transaction ends, OffsetFetch that wants nothing unstable is told
    to ask again (KIP-447).

        v2  the leader epoch of what was read last (KIP-320)
        v3  a member says its generation and id: one that is none any more is refused (KIP-447)
        v4  an error of its own for a transaction that is to be aborted (KIP-890)
        v5  the coordinator adds this partition to the transaction (KIP-890)
    """
    refusal = ErrorCode.none
    if why_no_transactions(context) is not None:
        refusal = ErrorCode.transactional_id_authorization_failed
    if refusal is ErrorCode.none:
        refusal = transactional_id_refusal(Operation.WRITE, request["transactional_id"], context)
    if refusal is ErrorCode.none:
        refusal = group_refusal(Operation.READ, request["group_id"], context)
    if refusal is not ErrorCode.none:
        return _commit_failed(request, refusal)
    has_member = version >= _MEMBERS_FROM
    asked = {
        **request,
        "member_id": request["member_id"] if has_member else "",
        "generation_id_or_member_epoch": request["generation_id"] if has_member else -1,
    }

    async def keep(commit: CommitRequest) -> Outcome | ErrorCode:
        return await _commit_in_transaction(request, commit, version, context, asker)

    return await _keep_known(asked, _EPOCHS_FROM, context, keep)


async def _commit_in_transaction(
    request: Message, commit: CommitRequest, version: int, context: Context, asker: Requester
) -> Outcome | ErrorCode:
    shard = context.groups.shard(commit.group)
    if isinstance(shard, ErrorCode):
        return shard
    producer_id, epoch = request["producer_id"], request["producer_epoch"]
    try:
        await shard.offsets.know_producers()
    except StreamlogError as error:
        return code_of_failure(error)
    verified = shard.offsets.verify_producer(producer_id, epoch)
    if verified is not None:
        code = await _verified(request, shard, version, context)
        if code in _PASSING:
            return ErrorCode.coordinator_load_in_progress
        if code is ErrorCode.transaction_abortable and version < _ABORTABLE_FROM:
            return ErrorCode.invalid_txn_state
        if code is not ErrorCode.none:
            return code
    if shard.why_not is not ErrorCode.none:  # by now
        return shard.why_not
    wanted = TransactionCommit(commit, TransactionPart(producer_id, epoch, verified))
    reply = shard.call(
        lambda coordinator, token, now: coordinator.commit_in_transaction(wanted, token, now)
    )
    timeout_ms = context.groups.settings.commit_timeout_ms
    result: Outcome | ErrorCode = await result_of(reply, asker.poll, timeout_ms)
    return result


async def _verified(
    request: Message, shard: GroupShard, version: int, context: Context
) -> ErrorCode:
    """What the transaction's coordinator says of the partition that the group's offsets are in."""
    transactions, tp = context.transaction_partitions, shard.partition.tp
    if transactions is None:
        return ErrorCode.coordinator_not_available
    codes = await transactions.add(
        request["transactional_id"],
        request["producer_id"],
        request["producer_epoch"],
        [tp],
        verify_only=version < _TRANSACTIONS_2_FROM,
    )
    return codes[tp]


_WHOLE_ERROR_FROM: Final = 2
_SEVERAL_GROUPS_FROM: Final = 8
NO_OFFSET: Final = -1


async def offset_fetch(
    request: Message, version: int, context: Context, asker: Requester
) -> Message:
    """OffsetFetch (9), versions 1 to 10: how far groups have come.

    Before it answers, the coordinator makes sure that it still is the one: an offset that was committed
    at another node in the meantime must not seem to go back. That costs the time of a commit. A node that
    is about to coordinate the group answers when it does.

        v2  null topics stand for all; an error of the whole request
        v5  the leader epoch of what was read last (KIP-320)
        v7  nothing that is about to be another offset (KIP-447)
        v8  several groups (KIP-709), each of them once: a name takes a few bytes, and the answer to it
            all that the group has committed
        v9  a member of the consumer protocol says its epoch: STALE_MEMBER_EPOCH if that is another (KIP-848)
        v10 topics by their ids
    """
    several = version >= _SEVERAL_GROUPS_FROM
    asked = request["groups"] if several else [request]
    stable = request.get("require_stable", False)
    counts = Counter(it["group_id"] for it in asked)
    confirming = [
        ErrorCode.invalid_request if counts[group] > 1 else _confirm(group, context)
        for group in (it["group_id"] for it in asked)
    ]
    if version >= _TOPIC_IDS_FROM:
        await _know_ids((topic for it in asked for topic in it["topics"] or ()), context)
    answers = []
    for it, confirmed in zip(asked, confirming, strict=True):
        timeout_ms = context.groups.settings.commit_timeout_ms
        error = await result_of(confirmed, asker.poll, timeout_ms)
        fetched = _fetched_by_id if version >= _TOPIC_IDS_FROM else _fetched_group
        answers.append(fetched(it, error, version, context, stable))
    return {"groups": answers} if several else answers[0]


def _confirm(group: str, context: Context) -> DelayedReply | ErrorCode:
    refusal = group_refusal(Operation.DESCRIBE, group, context)
    if refusal is not ErrorCode.none:
        return refusal
    return context.groups.confirm(group, when_opened=True)


def _fetched_by_id(
    asked: Message, error: ErrorCode, version: int, context: Context, stable: bool
) -> dict[str, Any]:
    named, unknown = _named(asked["topics"] or (), context)
    wanted = {**asked, "topics": None if asked["topics"] is None else named}
    answer = _fetched_group(wanted, error, version, context, stable)
    if asked["topics"] is None:
        streams = context.metadata.image.streams
        named = [
            {"name": it["name"], "topic_id": streams[it["name"]].stream_id}
            for it in answer["topics"]
            if it["name"] in streams
        ]
    topics = _with_ids(answer["topics"], named)
    if answer["error_code"] is ErrorCode.none:
        nothing = FoundOffset(None, ErrorCode.unknown_topic_id)
        topics += [
            {
                "topic_id": topic["topic_id"],
                "partitions": [
                    _fetched_partition(it, nothing) for it in topic["partition_indexes"]
                ],
            }
            for topic in unknown
        ]
    return {**answer, "topics": topics}


def _fetched_group(
    asked: Message, error: ErrorCode, version: int, context: Context, stable: bool
) -> dict[str, Any]:
    group, topics = asked["group_id"], asked["topics"]
    coordinator = context.groups.coordinator(group, may_be_empty=True)
    if error is ErrorCode.none and isinstance(coordinator, ErrorCode):
        error = coordinator
    if error is ErrorCode.none and not isinstance(coordinator, ErrorCode):
        epoch = asked.get("member_epoch", -1)
        error = coordinator.member_refusal(group, asked.get("member_id") or "", epoch)
    if error is not ErrorCode.none or isinstance(coordinator, ErrorCode):
        told = _fetch_failed(topics or (), error) if version < _WHOLE_ERROR_FROM else []
        return {"group_id": group, "error_code": error, "topics": told}
    found = coordinator.fetch(group, _places(topics), stable=stable)
    found = _visible(_of_today(found, topics, context), topics, context)
    return {"group_id": group, "error_code": ErrorCode.none, "topics": _fetched_topics(found)}


def _of_today(
    found: dict[PartitionId, FoundOffset], topics: Iterable[Message] | None, context: Context
) -> dict[PartitionId, FoundOffset]:
    """What was committed of a deleted stream is nothing to the one that has its name now.

    The coordinator removes it, which may fail. This node's image is no older than the one by which
    it was committed: the coordinator at that time had not heard of this node's leadership.
    """
    streams = context.metadata.image.streams
    others = {
        place
        for place, it in found.items()
        if it.committed is not None
        and it.committed.topic_id != NO_TOPIC_ID
        and (stream := streams.get(place[0])) is not None
        and stream.stream_id != it.committed.topic_id
    }
    if not others:
        return found
    if topics is None:
        return {place: it for place, it in found.items() if place not in others}
    nothing = FoundOffset(None, ErrorCode.none)
    return {place: nothing if place in others else it for place, it in found.items()}


def _visible(
    found: dict[PartitionId, FoundOffset], topics: Iterable[Message] | None, context: Context
) -> dict[PartitionId, FoundOffset]:
    """Nothing was committed of a topic that the caller may not know of; where all are asked for, it
    is left out.
    """
    access = context.access
    if access is None:
        return found
    if topics is None:
        return {place: it for place, it in found.items() if access.sees(place[0])}
    nothing = FoundOffset(None, ErrorCode.none)
    return {place: it if access.finds(place[0]) else nothing for place, it in found.items()}


def _places(topics: Iterable[Message] | None) -> list[PartitionId] | None:
    if topics is None:
        return None
    return [(topic["name"], index) for topic in topics for index in topic["partition_indexes"]]


def _fetched_topics(found: dict[PartitionId, FoundOffset]) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, index), offset in found.items():
        topics.setdefault(topic, []).append(_fetched_partition(index, offset))
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]


def _fetched_partition(index: int, found: FoundOffset) -> dict[str, Any]:
    committed = found.committed
    return {
        "partition_index": index,
        "committed_offset": NO_OFFSET if committed is None else committed.offset,
        "committed_leader_epoch": -1 if committed is None else committed.leader_epoch,
        "metadata": "" if committed is None else committed.metadata,
        "error_code": found.error,
    }


def _fetch_failed(topics: Iterable[Message], error: ErrorCode) -> list[dict[str, Any]]:
    failed = FoundOffset(None, error)
    return [
        {
            "name": topic["name"],
            "partitions": [
                _fetched_partition(index, failed) for index in topic["partition_indexes"]
            ],
        }
        for topic in topics
    ]


async def offset_delete(request: Message, _version: int, context: Context) -> Message:
    """OffsetDelete (47), version 0: a group forgets how far it has come in partitions (KIP-496).

    Not in those of topics that its members subscribe to. Any node has it done, wherever the coordinator is.
    """
    wanted = tuple(
        StreamPartitions(topic["name"], numbers)
        for topic in request["topics"]
        if (numbers := tuple(it["partition_index"] for it in topic["partitions"]))
    )
    try:
        forgotten = await context.control.groups.delete_offsets(request["group_id"], wanted)
    except StreamlogError as error:
        return {"error_code": group_code_of(error), "topics": []}
    codes = {(it.stream, it.partition): _code_of(it) for it in forgotten}
    return {
        "error_code": ErrorCode.none,
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    {
                        "partition_index": it["partition_index"],
                        "error_code": codes[topic["name"], it["partition_index"]],
                    }
                    for it in topic["partitions"]
                ],
            }
            for topic in request["topics"]
        ],
    }


def _code_of(forgotten: ForgottenOffset) -> ErrorCode:
    if forgotten.error is None:
        return ErrorCode.none
    return group_code_of(error_named(forgotten.error, forgotten.message))
