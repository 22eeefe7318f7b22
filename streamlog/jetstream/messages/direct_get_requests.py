"""DIRECT.GET: from a request to its replies, by this node or by the one that leads."""

import logging
from collections.abc import Mapping
from typing import Any, Final

import nats.errors

from streamlog.acl.rules import Operation
from streamlog.errors import StreamNotFound
from streamlog.jetstream.connection import AdminConnection, Request
from streamlog.jetstream.dispatcher import RequestDispatcher, has_api_level
from streamlog.jetstream.errors import ApiError, ApiRefused
from streamlog.jetstream.leaders.leader_router import LeaderRouter
from streamlog.jetstream.leaders.local_leader import LocalLeader, tp_of
from streamlog.jetstream.messages.direct_get import (
    LEVEL_MISSING,
    DirectReply,
    direct_replies,
    no_responders,
    status,
)
from streamlog.jetstream.messages.message_query import DirectQuery
from streamlog.jetstream.requests.fields import Fields, text
from streamlog.partition.partition import Partition

logger = logging.getLogger(__name__)

PREFIX: Final = "DIRECT.GET."
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

    async def answer(
        self, connection: AdminConnection, request: Request, verb: str, verbs: RequestDispatcher
    ) -> None:
        """``verb``: with the stream, and perhaps a subject, at its end; ``verbs``: the asker's."""
        verbs.count()
        name, dot, subject = verb.removeprefix(PREFIX).partition(".")
        try:
            if not await _allows(name, verbs):
                await connection.answer(request.reply, b"", no_responders(request.subject))
                return
            query = _query(request, subject if dot else None)
            partition = await self._leaders.direct(name, query, request.reply)
        except Exception as error:
            refused = status(self._verbs.failed(error, verb))
            await connection.answer(request.reply, b"", refused.block)
            return
        if partition is not None:
            await self._send(connection, request.reply, name, partition, query)

    async def answer_for(
        self, connection: AdminConnection, request: Request, fields: Fields
    ) -> None:
        """Another node's request: it hears at once whether it will be answered from here."""
        tp, query = tp_of(fields), DirectQuery.of_travelled(_object(fields, "query"))
        partition = self._leader.readable(tp)
        await connection.answer(request.reply, b"{}\n")
        await self._send(connection, text(fields, "reply"), tp.stream, partition, query)

    async def _send(
        self,
        connection: AdminConnection,
        reply: str,
        stream: str,
        partition: Partition,
        query: DirectQuery,
    ) -> None:
        """What goes wrong half-way is told in the place of the rest."""
        try:
            async for found in direct_replies(stream, partition, query):
                await _send_one(connection, reply, found)
        except nats.errors.MaxPayloadError:
            await _send_one(connection, reply, status(TOO_LARGE))
        except nats.errors.Error:
            raise
        except Exception as error:
            await _send_one(connection, reply, status(self._verbs.failed(error, "DIRECT.GET")))


async def _allows(name: str, verbs: RequestDispatcher) -> bool:
    """Raises TopicForbidden."""
    try:
        allowed = (await verbs.streams.stream(name)).config.allow_direct
    except StreamNotFound:
        return False
    if allowed and verbs.access is not None:
        verbs.access.check_topic(Operation.READ, name)
    return allowed


def _query(request: Request, subject: str | None) -> DirectQuery:
    """``subject``: at the end of the request's own. Raises Refused with a status."""
    if not has_api_level(request.headers):
        raise ApiRefused(LEVEL_MISSING)
    if subject is None:
        return DirectQuery.of(request.data)
    return DirectQuery.of_subject(subject, request.data)


async def _send_one(connection: AdminConnection, reply: str, found: DirectReply) -> None:
    await connection.answer(reply, found.data, found.block)


def _object(fields: Fields, key: str) -> Mapping[str, Any]:
    value = fields[key]
    if not isinstance(value, dict):
        raise TypeError(f"{key}: not an object")
    return value
