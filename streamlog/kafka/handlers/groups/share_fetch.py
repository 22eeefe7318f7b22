"""ShareFetch, ShareAcknowledge: what members of share groups acquire, and what they say of it (KIP-932).

A member has a share session with each node that leads a partition of its assignment. A request of it first says what
has become of records that were acquired before, then asks for more. Nothing is answered that the group's coordinator
does not have in its log: neither that an acknowledgement counts, nor a record.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from streamlog.acl.rules import Operation
from streamlog.errors import (
    CoordinatorLoading,
    CoordinatorUnavailable,
    FencedShareState,
    GroupNotFound,
    InvalidRequest,
    NodeUnreachable,
    NotCoordinator,
    NotLeader,
    Overloaded,
    PartitionNotFound,
    RequestTimedOut,
    StreamlogError,
    UnknownTopicId,
)
from streamlog.fairness import cooperatively
from streamlog.kafka.advertised_listeners import current_leader, endpoints
from streamlog.kafka.auth.resource_checks import check_topic, group_refusal, not_here, stream_named
from streamlog.kafka.context import Context, Requester
from streamlog.kafka.net.channel import RequestWait
from streamlog.model import TopicPartition
from streamlog.shares.led_share import AcquiredRecords, LedShare
from streamlog.shares.share_partition import AcknowledgeType, ShareAcknowledgement, Wish
from streamlog.shares.share_service import ShareService
from streamlog.shares.share_sessions import (
    CLOSING_EPOCH,
    OPENING_EPOCH,
    SessionKey,
    SharedPartition,
    ShareSession,
)
from streamlog.wire.api_messages import Message
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.errors import code_of
from streamlog.wire.leaders import CurrentLeader

SESSION_PARTITIONS_MAX: Final = 10_000
"""In a session, and in a request with what is in its session."""
_STRICT: Final = 1
"""The acquire mode of version 2 that takes no record more than it is asked for (KIP-1206)."""
_NO_TOPIC: Final = UUID(int=0)
_PASSING: Final = (
    CoordinatorLoading,
    CoordinatorUnavailable,
    FencedShareState,
    GroupNotFound,
    NodeUnreachable,
    NotCoordinator,
    Overloaded,
    RequestTimedOut,
    UnknownTopicId,
)
"""What keeps records from a member for a moment, and is nothing that it can help: it is answered without records."""
_FETCH_CODES: Final = frozenset(
    {
        ErrorCode.none,
        ErrorCode.not_leader_or_follower,
        ErrorCode.replica_not_available,
        ErrorCode.kafka_storage_error,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.offset_not_available,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
        ErrorCode.topic_authorization_failed,
        ErrorCode.unknown_server_error,
        ErrorCode.corrupt_message,
    }
)
"""Of partitions that records are asked of; Java's client ends at any other (``ShareFetchCollector``)."""
_PAUSE_MS: Final = 100
"""Before a partition is looked at again that is kept back by something that passes."""


class _Outcome(NamedTuple):
    """Of one partition in a request."""

    error: StreamlogError | None = None
    acknowledged: StreamlogError | None = None
    fetched: AcquiredRecords | None = None


async def share_fetch(
    request: Message, version: int, context: Context, asker: Requester
) -> Message:
    """ShareFetch (78), versions 1 and 2: acquire records, and acknowledge others.

    Needs READ on the group and on the topics. Waits as Fetch does. A batch is acquired as a whole, also if it has more
    records than are asked for.

        v2  not more records than asked for (KIP-1206); locks are renewed (KIP-1222)
    """
    opened = _opened(request, context, may_open=True)
    if isinstance(opened, ErrorCode):
        return _refused(opened)
    shares, key, session = opened
    epoch = request["share_session_epoch"]
    acknowledgements = _acknowledgements(request)
    if epoch == OPENING_EPOCH and any(acknowledgements.values()):
        shares.sessions.remove(key, session)
        return _refused(ErrorCode.invalid_request)
    if len(acknowledgements) + len(session.partitions) > SESSION_PARTITIONS_MAX:
        shares.sessions.remove(key, session)
        return _refused(ErrorCode.invalid_request)
    if epoch == OPENING_EPOCH:  # a member whose connection is gone will not answer for its records
        asker.at_end(key, partial(shares.close_session, key, session))
        for led in shares.known(key.group, acknowledgements):
            led.verify_soon()
    session.busy = True
    try:
        if epoch != CLOSING_EPOCH:
            session.partitions.update(dict.fromkeys(acknowledgements))
            for topic in request["forgotten_topics_data"]:
                for number in topic["partitions"]:
                    session.partitions.pop((topic["topic_id"] or _NO_TOPIC, number), None)
        asked = _ShareRequest(shares, key, context)
        outcomes = await asked.acknowledge(acknowledgements, request)
        if epoch == CLOSING_EPOCH:
            shares.close_session(key, session)
        elif not request.get("is_renew_ack", False):
            fetched = await asked.fetch(session, request, asker.poll)
            for place, outcome in fetched.items():
                said = outcomes.get(place, _Outcome())
                outcomes[place] = outcome._replace(acknowledged=said.acknowledged)
        session.rotate()
        if epoch == OPENING_EPOCH:
            outcomes = {it: outcomes.get(it, _Outcome()) for it in acknowledgements}
        return asked.answer(outcomes, _fetched_partition)
    finally:
        session.busy = False


async def share_acknowledge(
    request: Message, _version: int, context: Context, asker: Requester
) -> Message:
    """ShareAcknowledge (79), versions 1 and 2: what has become of records.

    Needs READ on the group and on the topics. It goes on with the share session.

        v2  locks are renewed (KIP-1222)
    """
    opened = _opened(request, context, may_open=False)
    if isinstance(opened, ErrorCode):
        return _refused(opened)
    shares, key, session = opened
    session.busy = True
    try:
        asked = _ShareRequest(shares, key, context)
        outcomes = await asked.acknowledge(_acknowledgements(request), request)
        if request["share_session_epoch"] == CLOSING_EPOCH:
            shares.close_session(key, session)
        return asked.answer(outcomes, _acknowledged_partition)
    finally:
        session.busy = False


def _opened(
    request: Message, context: Context, *, may_open: bool
) -> tuple[ShareService, SessionKey, ShareSession] | ErrorCode:
    key = SessionKey(request["group_id"] or "", request["member_id"] or "")
    if not key.group or not key.member_id:
        return ErrorCode.invalid_request
    refusal = group_refusal(Operation.READ, key.group, context)
    if refusal is not ErrorCode.none:
        return refusal
    shares = context.shares
    if shares is None:
        return ErrorCode.unsupported_version
    epoch = request["share_session_epoch"]
    session = shares.sessions.use(key, epoch, shares.clock_ms(), may_open=may_open)
    return session if isinstance(session, ErrorCode) else (shares, key, session)


def _refused(error: ErrorCode) -> Message:
    return {
        "error_code": error,
        "error_message": None,
        "acquisition_lock_timeout": 0,
        "responses": [],
        "node_endpoints": [],
    }


def _acknowledgements(request: Message) -> dict[SharedPartition, list[ShareAcknowledgement]]:
    """By partition, those without any, too."""
    return {
        (topic["topic_id"] or _NO_TOPIC, it["partition_index"]): [
            ShareAcknowledgement(ack["first_offset"], ack["last_offset"], ack["acknowledge_types"])
            for ack in it["acknowledgement_batches"]
        ]
        for topic in request["topics"]
        for it in topic["partitions"]
    }


class _ShareRequest:
    """What one request asks for."""

    def __init__(self, shares: ShareService, key: SessionKey, context: Context) -> None:
        self._shares = shares
        self._key = key
        self._context = context
        self._lock_ms = context.groups.settings.share_record_lock_duration_ms

    async def acknowledge(
        self, asked: Mapping[SharedPartition, Sequence[ShareAcknowledgement]], request: Message
    ) -> dict[SharedPartition, _Outcome]:
        """Of the partitions with acknowledgements; each is by itself."""
        wanted = {place: acks for place, acks in asked.items() if acks}
        may_renew = request.get("is_renew_ack", False)
        versions: dict[SharedPartition, tuple[LedShare, int]] = {}
        outcomes: dict[SharedPartition, _Outcome] = {}
        async for place, acks in cooperatively(wanted.items()):
            try:
                versions[place] = await self._acknowledge(place, acks, may_renew=may_renew)
            except StreamlogError as error:
                outcomes[place] = _Outcome(acknowledged=error)
        for place, (led, version) in versions.items():
            try:
                await led.saved(version)
            except StreamlogError as error:
                outcomes[place] = _Outcome(acknowledged=error)
            else:
                outcomes[place] = _Outcome()
        return outcomes

    async def _acknowledge(
        self, place: SharedPartition, acks: Sequence[ShareAcknowledgement], *, may_renew: bool
    ) -> tuple[LedShare, int]:
        """Where to wait until it counts, and for which version."""
        led = self._led(place)
        await led.ready()
        renews = any(AcknowledgeType.RENEW in it.types for it in acks)
        if renews and not (may_renew and led.settings.renew_acknowledge):
            raise InvalidRequest("locks are not renewed by this request, or in this group")
        self._lock_ms = led.settings.record_lock_duration_ms
        return led, led.acknowledge(self._key.member_id, acks)

    async def fetch(
        self, session: ShareSession, request: Message, poll: RequestWait
    ) -> dict[SharedPartition, _Outcome]:
        """Of the partitions with records, or with errors. Waits until there are any, or the time is over."""
        bytes_max = min(request["max_bytes"], self._context.settings.fetch_bytes_max)
        max_wait_ms = min(request["max_wait"], self._context.settings.idle_timeout_ms)
        if bytes_max <= 0 or not session.partitions:
            return {}
        found: dict[SharedPartition, _Outcome] = {}
        watched: dict[LedShare, None] = {}
        loop = asyncio.get_running_loop()
        call_later, ends_s = loop.call_later, loop.time() + max_wait_ms / 1000
        timers: list[asyncio.TimerHandle] = []

        def is_over() -> bool:
            return poll.ended or loop.time() >= ends_s

        try:
            while True:
                is_kept_back = await self._look(session, request, bytes_max, found, is_over)
                if found or poll.ended or max_wait_ms <= 0:
                    break
                if not timers:
                    timers.append(call_later(max_wait_ms / 1000, poll.end))
                if is_kept_back:
                    timers.append(call_later(_PAUSE_MS / 1000, poll.wake))
                fresh = [it for it in self._watchable(session) if it not in watched]
                if fresh:
                    for led in fresh:
                        watched[led] = None
                        led.watch(poll.wake)
                    continue  # it may have changed since it was looked at
                await poll.wait()
        finally:
            for timer in timers:
                timer.cancel()
            for led in watched:
                led.unwatch(poll.wake)
        return await self._saved(found)

    async def _look(
        self,
        session: ShareSession,
        request: Message,
        bytes_max: int,
        found: dict[SharedPartition, _Outcome],
        is_over: Callable[[], bool],
    ) -> bool:
        """Acquires what there is now. Whether something that passes keeps records back."""
        left_bytes, records_max = bytes_max, request["max_records"]
        left_records = records_max
        is_kept_back = False
        async for place in cooperatively(tuple(session.partitions)):
            if left_bytes <= 0 or (records_max > 0 and left_records <= 0):
                break
            wish = Wish(
                left_records if records_max > 0 else 0,
                request.get("share_acquire_mode", 0) == _STRICT,
                request["batch_size"],
            )
            try:
                led = self._led(place)
                fetched = await led.acquire(self._key.member_id, wish, left_bytes, is_over=is_over)
            except _PASSING as error:
                if isinstance(error, UnknownTopicId) and not self._is_known(place):
                    found[place] = _Outcome(error)
                is_kept_back = True
                continue
            except StreamlogError as error:
                found[place] = _Outcome(error)
                continue
            self._lock_ms = led.settings.record_lock_duration_ms
            if fetched is not None:
                left_bytes -= len(fetched.records)
                left_records -= sum(it.last - it.first + 1 for it in fetched.acquired)
                found[place] = _Outcome(fetched=fetched)
        return is_kept_back

    async def _saved(
        self, found: dict[SharedPartition, _Outcome]
    ) -> dict[SharedPartition, _Outcome]:
        """Nothing is told that is not kept; what cannot be kept is delivered again later."""
        for place, outcome in tuple(found.items()):
            if outcome.fetched is None:
                continue
            try:
                led = self._led(place)
                await led.saved(outcome.fetched.version)
            except _PASSING:
                del found[place]
            except StreamlogError as error:
                found[place] = _Outcome(error)
            else:
                self._lock_ms = led.settings.record_lock_duration_ms
        return found

    def _watchable(self, session: ShareSession) -> Iterable[LedShare]:
        return self._shares.known(self._key.group, session.partitions)

    def _is_known(self, place: SharedPartition) -> bool:
        return stream_named(place[0], self._context.metadata.image) is not None

    def _led(self, place: SharedPartition) -> LedShare:
        """Raises UnknownTopicId, TopicForbidden, NotLeader, PartitionNotFound."""
        topic_id, number = place
        name = stream_named(topic_id, self._context.metadata.image)
        if name is None:
            raise UnknownTopicId(f"no stream has the id {topic_id}")
        check_topic(Operation.READ, name, self._context)
        tp = TopicPartition(name, number)
        try:
            partition = self._context.partitions.partition(tp)
        except PartitionNotFound as error:
            raise not_here(error, tp, self._context) from None
        if partition.topic_id != topic_id.bytes:
            raise NotLeader(f"{tp}: the log here is another stream's")
        return self._shares.led(self._key.group, partition)

    def answer(self, outcomes: Mapping[SharedPartition, _Outcome], told: Any) -> Message:
        """With where the leaders are of partitions that this node does not lead."""
        topics: dict[UUID, list[dict[str, Any]]] = {}
        leaders: list[CurrentLeader | None] = []
        for (topic_id, number), outcome in outcomes.items():
            leader = self._leader(topic_id, number, outcome)
            leaders.append(leader)
            partition = {"partition_index": number, "current_leader": _shown(leader)}
            topics.setdefault(topic_id, []).append({**partition, **told(outcome)})
        nodes = endpoints(leaders, self._context.metadata.image)
        return {
            "error_code": ErrorCode.none,
            "error_message": None,
            "acquisition_lock_timeout": self._lock_ms,
            "responses": [{"topic_id": it, "partitions": them} for it, them in topics.items()],
            "node_endpoints": [it._asdict() for it in nodes],
        }

    def _leader(self, topic_id: UUID, number: int, outcome: _Outcome) -> CurrentLeader | None:
        if not any(isinstance(it, NotLeader) for it in (outcome.error, outcome.acknowledged)):
            return None
        image = self._context.metadata.image
        name = stream_named(topic_id, image)
        return None if name is None else current_leader(TopicPartition(name, number), image)


def _shown(leader: CurrentLeader | None) -> dict[str, int]:
    if leader is None:
        return {"leader_id": -1, "leader_epoch": -1}
    return {"leader_id": leader.leader_id, "leader_epoch": leader.leader_epoch}


def _code(error: StreamlogError | None) -> ErrorCode:
    """A leader whose state is another's by now is to be looked for again, as in Kafka."""
    if error is None:
        return ErrorCode.none
    if isinstance(error, FencedShareState):
        return ErrorCode.not_leader_or_follower
    if isinstance(error, NodeUnreachable | RequestTimedOut):
        return ErrorCode.coordinator_not_available
    return code_of(error)


def _fetch_code(error: StreamlogError | None) -> ErrorCode:
    code = _code(error)
    if code in _FETCH_CODES:
        return code
    is_over_soon = error is not None and error.retriable
    return ErrorCode.not_leader_or_follower if is_over_soon else ErrorCode.unknown_server_error


def _text(error: StreamlogError | None) -> str | None:
    return None if error is None else str(error)


def _fetched_partition(outcome: _Outcome) -> dict[str, Any]:
    fetched = outcome.fetched
    return {
        "error_code": _fetch_code(outcome.error),
        "error_message": _text(outcome.error),
        "acknowledge_error_code": _code(outcome.acknowledged),
        "acknowledge_error_message": _text(outcome.acknowledged),
        "records": b"" if fetched is None else fetched.records,
        "acquired_records": [
            {"first_offset": it.first, "last_offset": it.last, "delivery_count": it.count}
            for it in (() if fetched is None else fetched.acquired)
        ],
    }


def _acknowledged_partition(outcome: _Outcome) -> dict[str, Any]:
    return {
        "error_code": _code(outcome.acknowledged),
        "error_message": _text(outcome.acknowledged),
    }
