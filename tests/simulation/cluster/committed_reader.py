"""Reads as a consumer of committed records does (KIP-98), from any replica, and holds it against what is committed."""

from collections.abc import Callable, Sequence
from typing import Final

from streamlog.model import NodeId, TopicPartition
from streamlog.record.batch import batches
from streamlog.record.codec import iter_records
from streamlog.record.transaction_marker import marker_of
from streamlog.wire import registry
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.fetch import (
    READ_COMMITTED,
    FetchedRecords,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from tests.simulation.checkers import Violation
from tests.simulation.cluster.kafka_client import (
    GROUP,
    KafkaClient,
    Refused,
    Unanswered,
    check,
)
from tests.simulation.cluster.transaction_checkers import DecidedLog

FETCH_WAIT_MS: Final = 200

Found = list[tuple[int, str]]
"""Offsets and values."""


async def fetched(
    client: KafkaClient,
    tp: TopicPartition,
    offset: int,
    bytes_max: int,
    log_of: Callable[[TopicPartition], DecidedLog | None],
    *,
    node_id: NodeId | None = None,
) -> tuple[Found, int] | None:
    """What is found from there on, and the next offset; None after a failure, and a pause. ``node_id``: of any
    replica; None: of the leader. ``log_of``: what is committed by now.
    """
    try:
        target = await client.leader(tp) if node_id is None else node_id
        connection = await client.connection(target)
        wanted = FetchTopic(tp.stream, [FetchPartition(tp.partition, offset, bytes_max)])
        answer = await connection.fetch(
            FetchRequest([wanted], FETCH_WAIT_MS, 1, bytes_max, isolation_level=READ_COMMITTED)
        )
        check(answer.error_code, "Fetch")
        (found,) = answer.partitions
        if found.fetched.error_code == ErrorCode.offset_out_of_range:
            raise Violation(f"{tp}: node {target} says that {offset} is out of range")
        check(found.fetched.error_code, f"Fetch of {tp}")
    except (Unanswered, Refused):
        client.forget_leader(tp)
        await client.pause()
        return None
    records, after = _committed(found, offset)
    log = log_of(tp)
    if log is not None:
        _look(log, offset, found, records, after, f"node {target}")
    elif records:
        raise Violation(f"{tp}: node {target} gives {records}, and nothing is committed")
    return records, after


def _committed(found: FetchedRecords, offset: int) -> tuple[Found, int]:
    records: Found = []
    aborted = sorted(found.fetched.aborted, key=lambda it: it.first_offset)
    ended: set[int] = set()
    after = offset
    for header, batch in batches(found.records):
        while aborted and aborted[0].first_offset <= header.last_offset:
            ended.add(aborted.pop(0).producer_id)
        marker = marker_of(batch, header)
        if marker is not None:
            if not marker.is_commit:
                ended.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in ended):
            records += [
                (it.offset, (it.value or b"").decode().rstrip("."))
                for it in iter_records(batch)
                if it.offset >= offset
            ]
        after = max(after, header.next_offset)
    return records, after


def _look(
    log: DecidedLog, offset: int, found: FetchedRecords, records: Found, after: int, whose: str
) -> None:
    stable = found.fetched.stable_offset
    if stable is not None:
        log.look_at_stable_offset(stable, whose)
    if after > offset:
        log.look_at_stable_offset(after, f"what is read of {whose}")
    log.look_at_read(offset, after, records, whose)


async def committed_offset(
    client: KafkaClient,
    group: str,
    tp: TopicPartition,
    member: tuple[str | None, int] = (None, -1),
) -> int:
    """Of the group, that is stable. Raises Refused where another member has come in its place."""
    asked = {
        "groups": [
            {
                "group_id": group,
                "member_id": member[0],
                "member_epoch": member[1],
                "topics": [{"name": tp.stream, "partition_indexes": [tp.partition]}],
            }
        ],
        "require_stable": True,
    }
    while True:
        try:
            answer = await client.ask_coordinator(GROUP, group, registry.OFFSET_FETCH, 9, asked)
            (found,) = answer["groups"]
            check(found["error_code"], f"OffsetFetch of {group}")
            found = found["topics"][0]["partitions"][0]
            check(found["error_code"], f"OffsetFetch of {group}")
        except Refused as refused:
            if refused.error in FENCED_MEMBER:
                raise
            client.forget_coordinator(GROUP, group)
            await client.pause()
        except Unanswered:
            await client.pause()
        else:
            return max(0, int(found["committed_offset"]))


FENCED_MEMBER: Final[Sequence[ErrorCode]] = (
    ErrorCode.unknown_member_id,
    ErrorCode.stale_member_epoch,
    ErrorCode.fenced_member_epoch,
    ErrorCode.illegal_generation,
)
"""The caller is no member any more, or of an earlier epoch."""
