"""Fetch (1), versions 4 to 18: record batches from an offset on; waits where there are none.

Answered when ``min_bytes`` are there, when ``max_wait`` is over, when a partition has an error, or
when the peer is gone or the node stops. The first batch of the first non-empty partition is whole,
whatever ``max_bytes`` says; every batch after it is whole, too, and fits.

    v7   fetch sessions (KIP-227): only what has changed is asked for, and answered
    v9   the caller's leader epoch is checked
    v11  a consumer that tells its rack may be sent to a follower there (KIP-392)
    v12  the epoch of the caller's last batch is checked; the answer says where our history parts
    v13  topics are named by their ids (KIP-516): who reads a stream that is gone does not get one
         that was created anew under its name
    v16  the answer says where the leaders are that it tells of (KIP-951)

A replica asks by topic id, and is refused by name: the log that its position counts for must be of
the very stream that it means. If it sends another request while one of its session waits, the
waiting one is answered at once.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from kio.schema.errors import ErrorCode

from streamlog.authz.permissions import Permissions
from streamlog.errors import ClusterForbidden
from streamlog.fairness import at_once, cooperatively, stepwise
from streamlog.kafka.context import Context
from streamlog.kafka.fetch import metadata_fetch
from streamlog.kafka.fetch.fetch_session import FetchSession
from streamlog.kafka.fetch.partition_fetch import FetchCaller, PartitionFetch
from streamlog.kafka.fetch.sessionless_fetch import SessionlessFetch
from streamlog.kafka.interfaces import Slice
from streamlog.kafka.net.request_wait import RequestWait
from streamlog.kafka.net.response import Response
from streamlog.kafka.quotas import Charge
from streamlog.kafka.topology import endpoints
from streamlog.wire import fetch as wire
from streamlog.wire.control import AT_ONCE_BYTES
from streamlog.wire.cursor import Cursor
from streamlog.wire.leaders import NodeEndpoint

TURN_S: Final = 0.002
"""After looking at partitions for so long, others get their turn of the event loop."""
TOLD_AT_ONCE: Final = 500
"""Partitions in an answer that is made in one turn."""
NEWS_WAIT_MS: Final = 20
"""A replica hears so late of what was committed where no records follow, which would tell it."""


async def handle(
    cursor: Cursor,
    version: int,
    header: bytes,
    context: Context,
    poll: RequestWait,
    *,
    charge: Charge | None = None,
) -> Response:
    """The answer's slices are open; its receiver closes them.

    A consumer that has to wait is told so at once, and nothing else.
    """
    is_large = cursor.end - cursor.position > AT_ONCE_BYTES
    if not is_large:
        request = wire.read_request(cursor, version)
    else:
        request = await stepwise(wire.read_request_in_steps(cursor, version))
        is_large = request.replica_id < 0  # nodes have no more than there is, and must be quick
    if charge is not None:
        charge = _charged(charge, request)
    if context.access is not None and _is_refused(request, context.access):
        return _refused(header, version, ErrorCode.cluster_authorization_failed)
    if request.replica_id >= 0 and metadata_fetch.is_for(request):
        return await metadata_fetch.handle(request, version, header, context, poll)
    if request.session_epoch in (wire.SESSIONLESS, wire.NEW_SESSION):
        return await _answer_in_full(
            request, version, header, context, poll, charge=charge, is_large=is_large
        )
    return await _answer_changes(
        request, version, header, context, poll, charge=charge, is_large=is_large
    )


async def _answer_changes(
    request: wire.FetchRequest,
    version: int,
    header: bytes,
    context: Context,
    poll: RequestWait,
    *,
    charge: Charge | None,
    is_large: bool,
) -> Response:
    """Of what has changed since the last answer of the session."""
    caller = FetchCaller.of(request, context.session)
    session = context.fetch_sessions.use(request.session_id, caller.owner, _now_ms())
    if session is None or session.caller != caller:
        return _refused(header, version, ErrorCode.fetch_session_id_not_found)
    is_next = not session.busy and session.epoch == request.session_epoch
    if not is_next or session.by_id != (version >= wire.TOPIC_IDS_FROM):
        by_name = ErrorCode.fetch_session_topic_id_error
        code = by_name if is_next else ErrorCode.invalid_fetch_session_epoch
        return _refused(header, version, code)
    session.epoch = wire.next_session_epoch(session.epoch)
    poll.yields = session.caller.is_replica
    try:
        begin = session.begin(request, time.monotonic)
        await stepwise(begin) if is_large else at_once(begin)
        gathering = _Gathering(session, request, context, poll, charge, is_large=is_large)
        if charge is None or charge.may_fetch():
            await gathering.run()
        told = session.end(everything=False)
        if len(told) > TOLD_AT_ONCE and not caller.is_replica:
            answer = await _answer_in_turns(
                session,
                told,
                version,
                header,
                context,
                charge=charge,
                session_id=request.session_id,
            )
        else:
            throttle_ms = 0 if charge is None else _throttle_ms(told, charge)
            answer = _answer(
                told, version, header, context, session_id=request.session_id,
                throttle_ms=throttle_ms,
            )  # fmt: skip
            at_once(session.keep(told))
    except BaseException:
        session.fail()
        context.fetch_sessions.remove(request.session_id, caller.owner)
        raise
    if request.topics or request.forgotten:
        context.fetch_sessions.changed(request.session_id)
    return answer


async def _answer_in_full(
    request: wire.FetchRequest,
    version: int,
    header: bytes,
    context: Context,
    poll: RequestWait,
    *,
    charge: Charge | None,
    is_large: bool,
) -> Response:
    """Of every partition, in a new session if one is wanted and there is room for it.

    Of none to who has to wait, as KIP-219 has it.
    """
    if charge is not None and not charge.may_fetch():
        return _answer([], version, header, context, throttle_ms=charge.throttle_ms)
    sessions = context.fetch_sessions
    caller, by_id = FetchCaller.of(request, context.session), version >= wire.TOPIC_IDS_FROM
    if request.session_id != wire.NO_SESSION:
        sessions.remove(request.session_id, caller.owner)
    session: FetchSession | SessionlessFetch
    if request.session_epoch == wire.NEW_SESSION or caller.is_replica:
        session = FetchSession(caller, by_id=by_id)
        poll.yields = caller.is_replica and request.session_epoch == wire.NEW_SESSION
    else:
        session = SessionlessFetch(caller, by_id=by_id)
    try:
        begin = session.begin(request, time.monotonic)
        await stepwise(begin) if is_large else at_once(begin)
        await _Gathering(session, request, context, poll, charge, is_large=is_large).run()
    except BaseException:
        session.fail()
        raise
    told = session.end(everything=True)
    session_id = None
    if request.session_epoch == wire.NEW_SESSION and isinstance(session, FetchSession):
        session_id = sessions.admit(session, _now_ms()) if session.size else None
    if len(told) > TOLD_AT_ONCE and not caller.is_replica:
        return await _answer_in_turns(
            session, told, version, header, context, charge=charge,
            session_id=session_id or wire.NO_SESSION,
        )  # fmt: skip
    throttle_ms = 0 if charge is None else _throttle_ms(told, charge)
    answer = _answer(
        told,
        version,
        header,
        context,
        session_id=session_id or wire.NO_SESSION,
        throttle_ms=throttle_ms,
    )
    if session_id is not None and isinstance(session, FetchSession):
        at_once(session.keep(told))
    else:
        at_once(session.drop(told))
    return answer


def _answer(
    told: Sequence[PartitionFetch],
    version: int,
    header: bytes,
    context: Context,
    *,
    session_id: int = wire.NO_SESSION,
    throttle_ms: int = 0,
) -> Response:
    topics: dict[str | bytes, list[PartitionFetch]] = {}
    for fetch in told:
        topics.setdefault(fetch.key[0], []).append(fetch)
    fetched: list[wire.FetchedTopic] = []
    slices: list[Slice] = []
    for topic, group in topics.items():
        fetched.append((topic, [it.fetched() for it in group]))
        slices += [it.records for it in group if it.records is not None]
    nodes: Sequence[NodeEndpoint] = ()
    if version >= wire.NODES_FROM and any(fetch.final for fetch in told):
        leaders = (it.current_leader for _, group in fetched for it in group)
        nodes = endpoints(leaders, context.metadata.image)
    pieces = wire.encode_response(
        header, fetched, version, session_id=session_id, throttle_ms=throttle_ms, nodes=nodes
    )
    return Response(pieces, slices, throttle_ms)


async def _answer_in_turns(
    session: FetchSession | SessionlessFetch,
    told: Sequence[PartitionFetch],
    version: int,
    header: bytes,
    context: Context,
    *,
    charge: Charge | None,
    session_id: int,
) -> Response:
    """As ``_answer``, and after it ``keep`` or ``drop``: of a consumer that fetches from so many
    partitions that others have to have their turn meanwhile.

    What is told of a partition is what is remembered as told, whatever changes in between. The
    session is busy until the end: a further request of it is refused, as while this one waited.
    """
    session.busy = True
    slices: list[Slice] = []
    try:
        topics: dict[str | bytes, list[PartitionFetch]] = {}
        async for fetch in cooperatively(told):
            topics.setdefault(fetch.key[0], []).append(fetch)
        parts: dict[str | bytes, list[wire.FetchedPartition]] = {topic: [] for topic in topics}
        size_bytes, is_final = 0, False
        async for fetch in cooperatively([it for group in topics.values() for it in group]):
            parts[fetch.key[0]].append(fetch.fetched())
            is_final |= fetch.final
            if fetch.records is not None:
                slices.append(fetch.records)
                size_bytes += fetch.size_bytes
        fetched = list(parts.items())
        throttle_ms = 0
        if charge is not None:
            charge.fetched(size_bytes)
            throttle_ms = charge.throttle_ms
        nodes: Sequence[NodeEndpoint] = ()
        if version >= wire.NODES_FROM and is_final:
            leaders = {it.current_leader for _, group in fetched for it in group}
            nodes = endpoints(leaders, context.metadata.image)
        pieces = await asyncio.to_thread(
            wire.encode_response,
            header,
            fetched,
            version,
            session_id=session_id,
            throttle_ms=throttle_ms,
            nodes=nodes,
        )
        if session_id != wire.NO_SESSION and isinstance(session, FetchSession):
            await stepwise(session.keep(told))
        else:
            await stepwise(session.drop(told))
    except BaseException:
        for piece in slices:
            piece.close()
        for fetch in told:
            fetch.close()
        session.fail()
        if session_id != wire.NO_SESSION:
            context.fetch_sessions.remove(session_id, told[0].caller.owner)
        raise
    session.busy = False
    return Response(pieces, slices, throttle_ms)


def _charged(charge: Charge, request: wire.FetchRequest) -> Charge | None:
    """What replicas fetch is not counted."""
    if request.replica_id >= 0:
        return None
    charge.request()
    return charge


def _throttle_ms(told: Sequence[PartitionFetch], charge: Charge) -> int:
    charge.fetched(sum(fetch.size_bytes for fetch in told))
    return charge.throttle_ms


def _is_refused(request: wire.FetchRequest, access: Permissions) -> bool:
    """Only nodes replicate, and they have no ``Permissions``."""
    if request.replica_id < 0:
        return False
    try:
        access.refuse_to_clients(f"Fetch as replica {request.replica_id}")
    except ClusterForbidden:
        return True


def _refused(header: bytes, version: int, code: ErrorCode) -> Response:
    return Response(wire.encode_response(header, [], version, error_code=code))


def _now_ms() -> int:
    return int(time.monotonic() * 1000)


class _Gathering:
    """Looks at what is due, and while that is not enough at what becomes so: a request costs what
    it names, and a wake-up what has changed.
    """

    def __init__(
        self,
        session: FetchSession | SessionlessFetch,
        request: wire.FetchRequest,
        context: Context,
        poll: RequestWait,
        charge: Charge | None,
        *,
        is_large: bool,
    ) -> None:
        self._session = session
        self._is_large = is_large
        self._context = context
        self._poll = poll
        settings = context.settings
        limit = settings.fetch_bytes_max
        if charge is not None:
            limit = min(limit, charge.fetch_bytes_max() or limit)
        self._max_bytes = max(0, min(request.max_bytes, limit))
        self._enough = min(request.min_bytes, self._max_bytes)
        # A peer that vanished without a word must not be waited for longer than a silent one.
        self._max_wait_ms = min(request.max_wait_ms, settings.idle_timeout_ms)
        if context.session.ends_s is not None:  # what comes after that is not for this session
            left_ms = int((context.session.ends_s - time.monotonic()) * 1000)
            self._max_wait_ms = max(0, min(self._max_wait_ms, left_ms))
        self._found_bytes = 0
        self._final = False
        self._waits = False
        self._news: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        await self._look()
        if self._is_done or self._max_wait_ms <= 0:
            return
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._max_wait_ms / 1000, self._poll.end)
        self._waits = True
        waiting = self._session.wait(self._poll.wake)
        await stepwise(waiting) if self._is_large else at_once(waiting)
        try:
            await self._look()
            while not self._is_done:
                await self._poll.wait()
                await self._look()
        finally:
            timer.cancel()
            if self._news is not None:
                self._news.cancel()

    @property
    def _is_done(self) -> bool:
        return self._final or self._found_bytes >= self._enough or self._poll.ended

    async def _look(self) -> None:
        """At what is due, and at nothing else."""
        turn_ends = time.monotonic() + TURN_S
        for fetch in self._session.take_due():
            found = self._found_bytes - fetch.size_bytes
            await fetch.look(self._context, self._max_bytes - found, whole_first=found == 0)
            self._found_bytes = found + fetch.size_bytes
            self._final |= fetch.final
            if self._waits:
                self._session.watch(fetch)
            if time.monotonic() >= turn_ends:
                await asyncio.sleep(0)
                turn_ends = time.monotonic() + TURN_S
        if self._waits and self._session.news:
            self._end_soon()

    def _end_soon(self) -> None:
        """Not at once: what is committed together is told together."""
        if self._news is None and self._max_wait_ms > NEWS_WAIT_MS:
            loop = asyncio.get_running_loop()
            self._news = loop.call_later(NEWS_WAIT_MS / 1000, self._poll.end)
