"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, ListTransactions, DescribeTransactions: what
transactional producers ask of their coordinator. ``groups.offsets`` has their TxnOffsetCommit.

WriteTxnMarkers, DescribeProducers: transactions in the partitions that this node leads. Their coordinator ends them,
and clients look at them.

Producers of Java's clients from 4.0 on have version 2 of transactions (KIP-890): the leader of a partition has it
added when the first batch comes, and each EndTxn gives the next epoch. Others, as librdkafka, have their partitions
added themselves, and leaders verify that before they append; the epoch stays until InitProducerId.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from streamlog.acl.rules import Operation
from streamlog.clock import wall_ms
from streamlog.coordination.effects import Now
from streamlog.coordination.keys import partition_of
from streamlog.coordination.reply import DelayedReply
from streamlog.errors import (
    InvalidRequest,
    NotLeader,
    StreamlogError,
    StreamNotFound,
    TopicForbidden,
)
from streamlog.fairness import cooperatively
from streamlog.groups.subscribed_topics import matching
from streamlog.kafka.auth.resource_checks import (
    check_topic,
    group_refusal,
    led_partition,
    transactional_id_refusal,
)
from streamlog.kafka.context import Context, Requester
from streamlog.kafka.handlers.coordinators import result_of
from streamlog.kafka.handlers.produce import init_producer_id as init_idempotent_producer
from streamlog.kafka.read_barrier import PartitionLookup
from streamlog.kafka.refusal import told
from streamlog.kafka.transaction_support import why_no_transactions
from streamlog.metadata.stream.stream_config import OFFSETS_STREAM, is_internal
from streamlog.model import NO_EPOCH, TopicPartition
from streamlog.record.transaction_marker import TransactionMarker
from streamlog.transactions.coordinator import TransactionCoordinator
from streamlog.transactions.replay import KnownTransaction
from streamlog.transactions.requests import (
    AddRequest,
    Effect,
    EndRequest,
    GivenProducer,
    InitRequest,
)
from streamlog.transactions.service import TransactionService
from streamlog.transactions.transaction import (
    NO_PRODUCER,
    VERSION_2,
    PartitionId,
    ProducerEpoch,
    Transaction,
    TransactionState,
)
from streamlog.wire.api_messages import Message
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.errors import code_of

NONE: Final = ErrorCode.none
REFUSED: Final = ErrorCode.transactional_id_authorization_failed
"""What all clients take for final."""

_INIT_FENCED_FROM: Final = 4
_FENCED_FROM: Final = 2
_VERSION_2_FROM: Final = 5


async def init_producer_id(
    request: Message, version: int, context: Context, asker: Requester
) -> Message:
    """InitProducerId (22), versions 0 to 6: a producer's id and epoch.

    Without a transactional id, an id that no other producer has. With one, the id's next epoch: a producer that
    had the one before is fenced, and what it has open is aborted first.

        v3  a producer that gives its id and epoch goes on with that id in the next epoch (KIP-360)
        v4  an error of its own for a producer that is fenced (KIP-588)
        v6  two-phase commits (KIP-939) are refused
    """
    transactional_id = request["transactional_id"]
    if transactional_id is None:
        return await init_idempotent_producer(request, version, context)
    refused = _refusal(transactional_id, context)
    if refused is NONE and (request.get("enable2_pc") or request.get("keep_prepared_txn")):
        refused = REFUSED
    known = ProducerEpoch(
        request.get("producer_id", NO_PRODUCER), request.get("producer_epoch", NO_EPOCH)
    )
    wanted = InitRequest(transactional_id, request["transaction_timeout"], known)
    given = await _asked(
        transactional_id,
        refused,
        lambda coordinator, token, now: coordinator.init_producer(wanted, token, now),
        context,
        asker,
    )
    return {
        **_told(given, fenced=version >= _INIT_FENCED_FROM),
        "ongoing_txn_producer_id": NO_PRODUCER,
        "ongoing_txn_producer_epoch": NO_EPOCH,
    }


async def add_partitions_to_txn(
    request: Message, version: int, context: Context, asker: Requester
) -> Message:
    """AddPartitionsToTxn (24), versions 0 to 3: a producer is about to write to these partitions.

    All of them are added, or none. Between nodes another request does this.

        v2  an error of its own for a producer that is fenced (KIP-588)
    """
    topics = request["v3_and_below_topics"]
    transactional_id = request["v3_and_below_transactional_id"]
    places = [(it["name"], number) for it in topics for number in it["partitions"]]
    refused = _refusal(transactional_id, context)
    if refused is not NONE:
        return _added(topics, dict.fromkeys(places, refused))
    faults = await _faults(places, context)
    if faults:
        others = dict.fromkeys(places, ErrorCode.operation_not_attempted)
        return _added(topics, {**others, **faults})
    wanted = AddRequest(transactional_id, _producer(request, "v3_and_below_"), frozenset(places), 0)
    code = await _add(wanted, context, asker)
    return _added(topics, dict.fromkeys(places, _older(code, fenced=version >= _FENCED_FROM)))


async def add_offsets_to_txn(
    request: Message, version: int, context: Context, asker: Requester
) -> Message:
    """AddOffsetsToTxn (25), versions 0 to 4: a producer is about to commit offsets of this group.

    v2  an error of its own for a producer that is fenced (KIP-588)
    """
    transactional_id, group = request["transactional_id"], request["group_id"]
    refused = _refusal(transactional_id, context)
    if refused is NONE:
        refused = group_refusal(Operation.READ, group, context)
    if refused is not NONE:
        return {"error_code": refused}
    place = await offsets_partition(group, context)
    if isinstance(place, ErrorCode):
        return {"error_code": place}
    wanted = AddRequest(transactional_id, _producer(request), frozenset({place}), 0)
    code = await _add(wanted, context, asker)
    return {"error_code": _older(code, fenced=version >= _FENCED_FROM)}


async def end_txn(request: Message, version: int, context: Context, asker: Requester) -> Message:
    """EndTxn (26), versions 0 to 5: commit a transaction, or abort it.

    Answered when that is decided: from then on it happens, whatever fails. The partitions are told next.

        v2  an error of its own for a producer that is fenced (KIP-588)
        v5  the producer is given its next epoch (KIP-890)
    """
    transactional_id = request["transactional_id"]
    wanted = EndRequest(
        transactional_id,
        _producer(request),
        request["committed"],
        VERSION_2 if version >= _VERSION_2_FROM else 0,
    )
    given = await _asked(
        transactional_id,
        _refusal(transactional_id, context),
        lambda coordinator, token, now: coordinator.end(wanted, token, now),
        context,
        asker,
    )
    return _told(given, fenced=version >= _FENCED_FROM)


async def list_transactions(
    request: Message, _version: int, context: Context, asker: Requester
) -> Message:
    """ListTransactions (66), versions 0 to 2: the transactional ids that this node coordinates (KIP-664).

    v1  those whose transaction has been open for so long (KIP-994)
    v2  those whose names match an expression (KIP-1152)
    """
    known = {it.shown for it in TransactionState}
    answer: dict[str, Any] = {
        "error_code": NONE,
        "unknown_state_filters": [it for it in request["state_filters"] if it not in known],
        "transaction_states": [],
    }
    found: list[KnownTransaction] | ErrorCode = []
    if context.transactions is not None:
        found = context.transactions.known()
    if isinstance(found, ErrorCode):
        return {**answer, "error_code": found}
    pattern = request.get("transactional_id_pattern") or None
    try:
        names = (
            None if pattern is None else matching(pattern, [it.transactional_id for it in found])
        )
    except InvalidRequest:
        return {**answer, "error_code": ErrorCode.invalid_regular_expression}
    now_ms = wall_ms()
    answer["transaction_states"] = [
        {
            "transactional_id": it.transactional_id,
            "producer_id": it.transaction.producer_id,
            "transaction_state": it.transaction.state.shown,
        }
        async for it in cooperatively(found)
        if (names is None or it.transactional_id in names)
        and _is_wanted(it.transaction, request, now_ms)
        and (context.access is None or context.access.sees_transactional_id(it.transactional_id))
    ]
    return answer


async def describe_transactions(
    request: Message, _version: int, context: Context, asker: Requester
) -> Message:
    """DescribeTransactions (65), version 0: transactional ids, and what is in their transactions (KIP-664).

    Of the partitions, those of topics that the caller may know of.
    """
    states = [
        await _described(it, context, asker)
        async for it in cooperatively(request["transactional_ids"])
    ]
    return {"transaction_states": states}


# Parts


def _refusal(transactional_id: str, context: Context) -> ErrorCode:
    if why_no_transactions(context) is not None:
        return REFUSED
    return transactional_id_refusal(Operation.WRITE, transactional_id, context)


def _producer(request: Message, prefix: str = "") -> ProducerEpoch:
    return ProducerEpoch(request[f"{prefix}producer_id"], request[f"{prefix}producer_epoch"])


async def _asked(
    transactional_id: str,
    refused: ErrorCode,
    ask: Callable[[TransactionCoordinator, DelayedReply, Now], list[Effect]],
    context: Context,
    asker: Requester,
) -> GivenProducer:
    if refused is not NONE:
        return GivenProducer(refused)
    service = _service(context)
    result = await result_of(
        service.call(transactional_id, ask), asker.poll, service.settings.write_timeout_ms
    )
    return GivenProducer(result) if isinstance(result, ErrorCode) else result


async def _add(wanted: AddRequest, context: Context, asker: Requester) -> ErrorCode:
    service = _service(context)
    reply = service.call(
        wanted.transactional_id,
        lambda coordinator, token, now: coordinator.add_partitions(wanted, token, now),
    )
    return ErrorCode(await result_of(reply, asker.poll, service.settings.write_timeout_ms))


def _service(context: Context) -> TransactionService:
    assert context.transactions is not None
    return context.transactions


def _told(given: GivenProducer, *, fenced: bool) -> dict[str, Any]:
    return {
        "error_code": _older(given.error, fenced=fenced),
        "producer_id": given.producer.producer_id,
        "producer_epoch": given.producer.epoch,
    }


def _older(code: ErrorCode, *, fenced: bool) -> ErrorCode:
    """As a client is told that does not know PRODUCER_FENCED."""
    if code is ErrorCode.producer_fenced and not fenced:
        return ErrorCode.invalid_producer_epoch
    return code


async def _faults(places: list[PartitionId], context: Context) -> dict[PartitionId, ErrorCode]:
    """Partitions that the caller may not write to, or that there are none of."""
    found: dict[PartitionId, ErrorCode] = {}
    lookup = PartitionLookup(context)
    for place in places:
        tp = TopicPartition(*place)
        try:
            check_topic(Operation.WRITE, tp.stream, context)
            await lookup.look_up(tp)
        except TopicForbidden:
            found[place] = ErrorCode.topic_authorization_failed
            continue
        except StreamNotFound:
            found[place] = ErrorCode.unknown_topic_or_partition
            continue
        except NotLeader:
            found[place] = ErrorCode.coordinator_not_available
            continue
        stream = context.metadata.image.streams.get(tp.stream)
        if stream is None or not 0 <= tp.partition < len(stream.partitions):
            found[place] = ErrorCode.unknown_topic_or_partition
        elif is_internal(tp.stream):
            found[place] = ErrorCode.topic_authorization_failed
    return found


def _added(topics: list[Message], codes: dict[PartitionId, ErrorCode]) -> Message:
    return {
        "results_by_topic_v3_and_below": [
            {
                "name": it["name"],
                "results_by_partition": [
                    {
                        "partition_index": number,
                        "partition_error_code": codes[it["name"], number],
                    }
                    for number in it["partitions"]
                ],
            }
            for it in topics
        ]
    }


async def offsets_partition(group: str, context: Context) -> PartitionId | ErrorCode:
    """Where the group's offsets are; its stream is made, if there is none."""
    found = await context.groups.find(group)
    stream = context.metadata.image.streams.get(OFFSETS_STREAM)
    if stream is None or found.error is ErrorCode.invalid_group_id:
        return found.error
    return OFFSETS_STREAM, partition_of(group, len(stream.partitions))


def _is_wanted(it: Transaction, request: Message, now_ms: int) -> bool:
    states, producers = request["state_filters"], request["producer_id_filters"]
    open_ms = request.get("duration_filter", -1)
    return (
        (not states or it.state.shown in states)
        and (not producers or it.producer_id in producers)
        and (open_ms < 0 or (it.is_open and now_ms - it.start_ms >= open_ms))
    )


async def _described(transactional_id: str, context: Context, asker: Requester) -> dict[str, Any]:
    code = transactional_id_refusal(Operation.DESCRIBE, transactional_id, context)
    service, found = context.transactions, None
    if code is NONE and service is None:
        code = ErrorCode.transactional_id_not_found
    if code is NONE and service is not None:
        confirmed = service.confirm(transactional_id)
        code = await result_of(confirmed, asker.poll, service.settings.write_timeout_ms)
        if code is NONE:
            known = service.find_known(transactional_id)
            code = known if isinstance(known, ErrorCode) else NONE
            found = None if isinstance(known, ErrorCode) else known.transaction
    if found is None:
        return {
            "error_code": code,
            "transactional_id": transactional_id,
            "transaction_state": "",
            "transaction_timeout": 0,
            "transaction_start_time": -1,
            "producer_id": NO_PRODUCER,
            "producer_epoch": NO_EPOCH,
            "topics": [],
        }
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(found.partitions):
        if context.access is None or context.access.sees(topic):
            topics.setdefault(topic, []).append(number)
    return {
        "error_code": NONE,
        "transactional_id": transactional_id,
        "transaction_state": found.state.shown,
        "transaction_timeout": found.timeout_ms,
        "transaction_start_time": found.start_ms,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "topics": [{"topic": name, "partitions": numbers} for name, numbers in topics.items()],
    }


async def write_txn_markers(request: Message, _version: int, context: Context) -> Message:
    """WriteTxnMarkers (27), versions 1 and 2: between nodes. Each marker is answered when all in-sync replicas
    have it; one that is there already is a success.

        v2  the version of the transaction is told (KIP-1228): a marker of version 2 has the producer's next epoch
    """
    return {
        "markers": [
            {
                "producer_id": marker["producer_id"],
                "topics": [
                    {
                        "name": topic["name"],
                        "partitions": await asyncio.gather(
                            *(
                                _write_marker(TopicPartition(topic["name"], index), marker, context)
                                for index in topic["partition_indexes"]
                            )
                        ),
                    }
                    async for topic in cooperatively(marker["topics"])
                ],
            }
            async for marker in cooperatively(request["markers"])
        ]
    }


async def _write_marker(tp: TopicPartition, asked: Message, context: Context) -> dict[str, Any]:
    marker = TransactionMarker(
        asked["producer_id"],
        asked["producer_epoch"],
        asked["transaction_result"],
        asked["coordinator_epoch"],
        asked.get("transaction_version", 0),
    )
    try:
        partition = led_partition(tp, NO_EPOCH, context)
        if tp.stream == OFFSETS_STREAM:
            await context.groups.end_transaction(tp, marker)
        else:
            await partition.end_transaction(marker)
    except StreamlogError as error:
        return {"partition_index": tp.partition, "error_code": code_of(error)}
    return {"partition_index": tp.partition, "error_code": ErrorCode.none}


async def describe_producers(request: Message, _version: int, context: Context) -> Message:
    """DescribeProducers (61), version 0: who writes to a partition in numbered batches, and since where in a
    transaction (KIP-664).
    """
    lookup = PartitionLookup(context)
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    await _described_producers(
                        TopicPartition(topic["name"], index), lookup, context
                    )
                    async for index in cooperatively(topic["partition_indexes"])
                ],
            }
            async for topic in cooperatively(request["topics"])
        ]
    }


async def _described_producers(
    tp: TopicPartition, lookup: PartitionLookup, context: Context
) -> dict[str, Any]:
    try:
        partition = await lookup.partition(tp)
        check_topic(Operation.READ, tp.stream, context)
        await partition.know_producers()
    except StreamlogError as error:
        return {"partition_index": tp.partition, **told(error)}
    return {
        "partition_index": tp.partition,
        "error_code": ErrorCode.none,
        "active_producers": [
            {
                "producer_id": it.producer_id,
                "producer_epoch": it.producer_epoch,
                "last_sequence": it.last_sequence,
                "last_timestamp": it.last_ms,
                "coordinator_epoch": it.coordinator_epoch,
                "current_txn_start_offset": it.first_offset,
            }
            for it in partition.active_producers()
        ],
    }
