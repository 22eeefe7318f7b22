"""DIRECT.GET: from a request to its replies, by this node or by the one that leads."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Final

import nats.errors

from streamlog.control.leaders.leader_router import LeaderRouter
from streamlog.control.leaders.local_leader import LocalLeader, tp_of
from streamlog.control.leaders.node_requests import Fields, NodeAnswer
from streamlog.errors import NotLeader, StreamNotFound
from streamlog.jetstream.connection import Answering, Request
from streamlog.jetstream.direct_get.direct_get import (
    LEVEL_MISSING,
    DirectPart,
    DirectReply,
    Progress,
    direct_part,
    direct_replies,
    no_responders,
    status,
)
from streamlog.jetstream.direct_get.direct_query import DirectQuery
from streamlog.jetstream.dispatcher import RequestDispatcher, has_api_level
from streamlog.jetstream.errors import ApiError, ApiRefused
from streamlog.metadata.stream.stream_origin import origin_of
from streamlog.model import TopicPartition

logger = logging.getLogger(__name__)

SENT_AT_ONCE: Final = 200
"""Messages of one answer, before others have their turn of the event loop."""
PREFIX: Final = "DIRECT.GET."
DIRECT: Final = "DIRECT"
"""The request of a node that has no replica in sync."""
TOO_LARGE: Final = ApiError(
    500, 10051, "the message and its headers are larger than NATS lets through"
)


class DirectRequests:
    """Answers any number of them side by side."""

    def __init__(
        self, leader: LocalLeader, leaders: LeaderRouter, verbs: RequestDispatcher
    ) -> None:
        self._leader = leader
        self._leaders = leaders
        self._verbs = verbs
        self._mirrors: tuple[object, dict[str, str]] | None = None
        """By the origin's name, as all streams of an image have it."""

    async def answer(self, request: Request, verb: str, verbs: RequestDispatcher) -> None:
        """``verb``: with the stream, and perhaps a subject, at its end; ``verbs``: the asker's."""
        connection = request.connection
        verbs.count()
        name, dot, subject = verb.removeprefix(PREFIX).partition(".")
        try:
            name = self._mirror_of(name, verbs)
            if not await _allows(name, verbs):
                await connection.answer(request.reply, b"", no_responders(request.subject))
                return
            query = _query(request, subject if dot else None)
            replies = await self._replies(name, query)
        except Exception as error:
            refused = status(self._verbs.failed(error, verb))
            await connection.answer(request.reply, b"", refused.block)
            return
        await self._send(connection, request.reply, replies)

    def _mirror_of(self, name: str, verbs: RequestDispatcher) -> str:
        """The stream itself, or where there is none a mirror of it that answers for it."""
        image = verbs.control.streams.image
        if name in image.streams:
            return name
        if self._mirrors is None or self._mirrors[0] is not image.streams:
            found = {
                origin_of(it.config.mirror).name: it.name
                for it in image.streams.values()
                if it.config.mirror_direct
            }
            self._mirrors = image.streams, found
        return self._mirrors[1].get(name, name)

    async def _replies(self, stream: str, query: DirectQuery) -> AsyncIterator[DirectReply]:
        """By the replica of partition 0 that is here, if it is in sync; otherwise the leader's, of
        which the first part is here when this returns. Raises NotLeader, NodeUnreachable, ...
        """
        tp = TopicPartition(stream, 0)
        with contextlib.suppress(NotLeader):
            return direct_replies(stream, self._leader.readable(tp), query)
        return self._parts(tp, query, await self._part_at_leader(tp, query, Progress()))

    async def _parts(
        self, tp: TopicPartition, query: DirectQuery, part: DirectPart
    ) -> AsyncIterator[DirectReply]:
        while True:
            for reply in part.replies:
                yield reply
            if part.progress is None:
                return
            part = await self._part_at_leader(tp, query, part.progress)

    async def _part_at_leader(
        self, tp: TopicPartition, query: DirectQuery, progress: Progress
    ) -> DirectPart:
        async def here() -> DirectPart:
            return await direct_part(tp.stream, self._leader.readable(tp), query, progress)

        fields = {
            "stream": tp.stream,
            "partition": tp.partition,
            "query": query.json(),
            "progress": progress.json(),
        }
        return await self._leaders.at_leader(
            tp, DIRECT, fields, here=here, decode=_part_of, repeatable=True
        )

    async def answer_node(self, fields: Fields) -> NodeAnswer:
        """A part of an answer, for a node that has no replica in sync."""
        tp, query = tp_of(fields), DirectQuery.of_travelled(fields["query"])
        progress = Progress(*fields["progress"])
        part = await direct_part(tp.stream, self._leader.readable(tp), query, progress)
        pieces = [piece for reply in part.replies for piece in reply]
        rest = None if part.progress is None else part.progress.json()
        return NodeAnswer({"sizes": list(map(len, pieces)), "rest": rest}, b"".join(pieces))

    async def _send(
        self, connection: Answering, reply: str, replies: AsyncIterator[DirectReply]
    ) -> None:
        """What goes wrong half-way is told in the place of the rest."""
        try:
            sent = 0
            async for found in replies:
                await _send_one(connection, reply, found)
                sent += 1
                if sent % SENT_AT_ONCE == 0:
                    await asyncio.sleep(0)
        except nats.errors.MaxPayloadError:
            await _send_one(connection, reply, status(TOO_LARGE))
        except nats.errors.Error:
            raise
        except Exception as error:
            await _send_one(connection, reply, status(self._verbs.failed(error, "DIRECT.GET")))


def _part_of(answer: NodeAnswer) -> DirectPart:
    """What ``answer_node`` answers. Raises KeyError, TypeError, ValueError for what is none."""
    pieces, position = list[bytes](), 0
    for size in answer.fields["sizes"]:
        pieces.append(answer.data[position : position + size])
        position += size
    rest = answer.fields["rest"]
    replies = [DirectReply(*pair) for pair in zip(pieces[::2], pieces[1::2], strict=True)]
    return DirectPart(replies, None if rest is None else Progress(*rest))


async def _allows(name: str, verbs: RequestDispatcher) -> bool:
    """Raises TopicForbidden."""
    try:
        allowed = (await verbs.control.streams.find(name)).config.allow_direct
        if allowed:
            await verbs.control.messages.readable(name)
    except StreamNotFound:
        return False
    return allowed


def _query(request: Request, subject: str | None) -> DirectQuery:
    """``subject``: at the end of the request's own. Raises Refused with a status."""
    if not has_api_level(request.headers):
        raise ApiRefused(LEVEL_MISSING)
    if subject is None:
        return DirectQuery.of(request.data)
    return DirectQuery.of_subject(subject, request.data)


async def _send_one(connection: Answering, reply: str, found: DirectReply) -> None:
    await connection.answer(reply, found.data, found.block)
