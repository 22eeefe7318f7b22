"""Fetch (1), versions 4 to 18: record batches from an offset on; waits where there are none.

Answered when ``min_bytes`` are there, when ``max_wait`` is over, when a partition has an error, or
when the peer is gone or the node stops. The first batch of the first non-empty partition is whole,
whatever ``max_bytes`` says; every batch after it is whole, too, and fits.

    v7   fetch sessions (KIP-227): only what has changed is asked for, and answered
    v9   the caller's leader epoch is checked
    v11  a consumer that tells its rack may be sent to a follower there (KIP-392)
    v12  the epoch of the caller's last batch is checked; the answer says where our history parts
    v13  topics are named by their ids (KIP-516): a reader of a stream that is gone does not get
         another one that was created under its name
    v16  the answer says where the leaders are that it tells of (KIP-951)

A replica asks by topic id, and is refused by name: the log that its position counts for must be of
the very stream that it means. If it sends another request while one of its session waits, the
waiting one is answered at once.
"""

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from streamlog.authz.permissions import Permissions
from streamlog.errors import ClusterForbidden
from streamlog.fairness import stepwise
from streamlog.kafka.advertised_listeners import endpoints
from streamlog.kafka.context import Context
from streamlog.kafka.fetch.fetch_session import STEP, FetchCaller, FetchSession, PartitionFetch
from streamlog.kafka.handlers import quorum
from streamlog.kafka.net.channel import RequestWait
from streamlog.kafka.net.response import Response
from streamlog.kafka.quotas import RequestQuota
from streamlog.log.segment.file_slice import FileSlice
from streamlog.wire import fetch as wire
from streamlog.wire.api_messages import AT_ONCE_BYTES
from streamlog.wire.cursor import Cursor
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.leaders import NodeEndpoint

TURN_S: Final = 0.002
"""After looking at partitions for so long, others get their turn of the event loop."""
TOLD_AT_ONCE: Final = 500
"""Partitions in an answer that is made in one turn."""
NEWS_WAIT_MS: Final = 20
"""So late a replica is told of what was committed, where no records follow that would tell it."""


async def fetch(
    cursor: Cursor,
    version: int,
    header: bytes,
    context: Context,
    wait: RequestWait,
    *,
    charge: RequestQuota | None = None,
) -> Response:
    """The answer's slices are open; its receiver closes them.

    A consumer that has to wait for its quota is told so at once, and nothing else (KIP-219).
    """
    if cursor.end - cursor.position <= AT_ONCE_BYTES:
        request = wire.read_request(cursor, version)
    else:
        request = await stepwise(wire.read_request_in_steps(cursor, version))
    if charge is not None:
        charge = _charged(charge, request)
    if context.access is not None and _is_refused(request, context.access):
        return _refused(header, version, ErrorCode.cluster_authorization_failed)
    if request.replica_id >= 0 and quorum.is_metadata_fetch(request):
        return await quorum.fetch(request, version, header, context, wait)
    is_full = request.session_epoch in (wire.SESSIONLESS, wire.NEW_SESSION)
    if is_full and charge is not None and not charge.may_fetch():
        throttle_ms = charge.throttle_ms
        pieces = wire.encode_response(header, [], version, throttle_ms=throttle_ms)
        return Response(pieces, throttle_ms=throttle_ms)
    caller, sessions = FetchCaller.of(request, context.session), context.fetch_sessions
    now_ms = int(time.monotonic() * 1000)
    session = sessions.use(request, caller, now_ms, by_id=version >= wire.TOPIC_IDS_FROM)
    if not isinstance(session, FetchSession):
        return _refused(header, version, session)
    session_id = wire.NO_SESSION if is_full else request.session_id
    wait.yields = request.session_epoch != wire.SESSIONLESS and caller.is_replica
    delayed = DelayedFetch(session, request, context, wait, charge)
    try:
        for _ in session.begin(request, time.monotonic, wait.wake):
            await delayed.turn()
        if is_full or charge is None or charge.may_fetch():
            await delayed.complete()
        if request.session_epoch == wire.NEW_SESSION and session.size:
            session_id = sessions.admit(session, int(time.monotonic() * 1000)) or wire.NO_SESSION
        response = await delayed.respond(header, version, session_id)
    except BaseException:
        session.fail()
        sessions.remove(session_id, caller.owner)
        raise
    if not is_full and (request.topics or request.forgotten):
        sessions.changed(session_id)
    return response


class DelayedFetch:
    """One request, which is delayed until there is enough to answer. Its purgatory, as Kafka calls
    where such requests wait, are the watchers of its partitions.

        state       what it does                          what ends it
        reading     looks at each partition that is due   enough, or waiting is of no use: answering
                                                          nothing is due any more: waiting
        waiting     all that it has looked at is watched  a partition has changed: reading
                                                          ``max_wait`` is over, the peer is gone, or
                                                          the node stops: answering
        answering   what has changed goes into a          the session rests, or is over
                    response

    ``FetchSession`` has the states of its partitions. A request costs what it names, and a wake-up
    what has changed. Requests of many partitions are taken in turns: others have theirs after
    ``TURN_S``, but only between looks if the caller is a replica, which must be quick and has no
    more partitions than there are.
    """

    def __init__(
        self,
        session: FetchSession,
        request: wire.FetchRequest,
        context: Context,
        wait: RequestWait,
        charge: RequestQuota | None,
    ) -> None:
        self._session = session
        self._request = request
        self._context = context
        self._wait = wait
        self._charge = charge
        self._is_replica = session.caller.is_replica
        self._turn_ends_s = time.monotonic() + TURN_S

    async def complete(self) -> None:
        """Read until there is enough; wait for more where there is not."""
        session, wait = self._session, self._wait
        max_bytes, enough_bytes, max_wait_ms = self._limits()
        found_bytes, is_final, is_delayed = 0, False, False
        timers: list[asyncio.TimerHandle] = []
        try:
            while True:
                self._turn_ends_s = time.monotonic() + TURN_S
                due, session.due = session.due, {}
                session.looked_at.update(due)
                for fetch in due:
                    others_bytes = found_bytes - fetch.size_bytes
                    await fetch.look(
                        self._context, max_bytes - others_bytes, whole_first=not others_bytes
                    )
                    found_bytes = others_bytes + fetch.size_bytes
                    is_final |= fetch.final
                    if is_delayed:
                        fetch.watch()
                    if time.monotonic() >= self._turn_ends_s:
                        await asyncio.sleep(0)
                        self._turn_ends_s = time.monotonic() + TURN_S
                if is_final or found_bytes >= enough_bytes or wait.ended or max_wait_ms <= 0:
                    return
                call_later = asyncio.get_running_loop().call_later
                if not is_delayed:
                    is_delayed = True
                    timers.append(call_later(max_wait_ms / 1000, wait.end))
                    for done, fetch in enumerate(session.looked_at):
                        fetch.watch()  # due at once, if it has changed since the look
                        if done % STEP == STEP - 1:
                            await self.turn()
                if session.news and len(timers) == 1 and max_wait_ms > NEWS_WAIT_MS:
                    # Not at once: what is committed together is told together.
                    timers.append(call_later(NEWS_WAIT_MS / 1000, wait.end))
                await wait.wait()
        finally:
            for timer in timers:
                timer.cancel()
            session.looked_at.update(session.news)
            session.news = {}

    async def respond(self, header: bytes, version: int, session_id: int) -> Response:
        """The response, and what the session keeps of it; ``NO_SESSION``: nothing.

        For a consumer that fetches from so many partitions that others have to have their turn it
        is made in turns: then what is told of a partition is what is noted as told, whatever
        changes in between. The session is busy until the end: a further request of it is refused.
        """
        session, charge = self._session, self._charge
        is_full = self._request.session_epoch in (wire.SESSIONLESS, wire.NEW_SESSION)
        told = session.to_answer(everything=is_full)
        groups: dict[str | bytes, list[PartitionFetch]] = {}
        for done, fetch in enumerate(told):
            groups.setdefault(fetch.key[0], []).append(fetch)
            if done % STEP == STEP - 1:
                await self.turn()
        done = 0
        topics: list[tuple[str | bytes, list[wire.FetchedPartition]]] = []
        slices: list[FileSlice] = []
        for topic, group in groups.items():
            fetched: list[wire.FetchedPartition] = []
            topics.append((topic, fetched))
            for fetch in group:
                fetched.append(fetch.fetched())
                if fetch.records is not None:
                    slices.append(fetch.records)
                done += 1
                if done % STEP == 0:
                    await self.turn()
        throttle_ms = 0
        if charge is not None:
            charge.fetched(sum(map(len, slices)))
            throttle_ms = charge.throttle_ms
        nodes: Sequence[NodeEndpoint] = ()
        if version >= wire.NODES_FROM and any(fetch.final for fetch in told):
            leaders = {it.current_leader for _, fetched in topics for it in fetched}
            nodes = endpoints(leaders, self._context.metadata.image)
        encode = partial(
            wire.encode_response, header, topics, version,
            session_id=session_id, throttle_ms=throttle_ms, nodes=nodes,
        )  # fmt: skip
        is_large = len(told) > TOLD_AT_ONCE and not self._is_replica
        pieces = await asyncio.to_thread(encode) if is_large else encode()
        if session_id == wire.NO_SESSION:
            session.close()
        else:
            for _ in session.end():
                await self.turn()
        return Response(pieces, slices, throttle_ms)

    def _limits(self) -> tuple[int, int, int]:
        """The most bytes; the bytes that are enough; the most milliseconds to wait for them."""
        request, context = self._request, self._context
        limit = context.settings.fetch_bytes_max
        if self._charge is not None:
            limit = min(limit, self._charge.fetch_bytes_max() or limit)
        max_bytes = max(0, min(request.max_bytes, limit))
        # A peer that vanished without a word must not be waited for longer than a silent one.
        max_wait_ms = min(request.max_wait_ms, context.settings.idle_timeout_ms)
        if context.session.ends_s is not None:  # what comes after that is not for this session
            left_ms = int((context.session.ends_s - time.monotonic()) * 1000)
            max_wait_ms = max(0, min(max_wait_ms, left_ms))
        return max_bytes, min(request.min_bytes, max_bytes), max_wait_ms

    async def turn(self) -> None:
        """Between two steps."""
        if not self._is_replica and time.monotonic() >= self._turn_ends_s:
            await asyncio.sleep(0)
            self._turn_ends_s = time.monotonic() + TURN_S


def _charged(charge: RequestQuota, request: wire.FetchRequest) -> RequestQuota | None:
    """What replicas fetch is not counted."""
    if request.replica_id >= 0:
        return None
    charge.request()
    return charge


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
