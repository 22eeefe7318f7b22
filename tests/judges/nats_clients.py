"""Clients of nats-py that note what they do: logs, expected sequences, buckets of keys."""

import asyncio
import random
import re
import threading
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Final

from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.js import JetStreamContext
from nats.js.api import StreamConfig
from nats.js.errors import (
    APIError,
    KeyNotFoundError,
    KeyWrongLastSequenceError,
    NoStreamResponseError,
    NotFoundError,
    ServiceUnavailableError,
)
from nats.js.kv import KeyValue

from tests.judges.history import Call, History

ACK_TIMEOUT_S: Final = 1.0
RETRY_S: Final = 0.02
PAUSE_S: Final = 0.01
"""Between two operations of a client, so that a history stays small enough for the judge."""
READ_BACK: Final = 10
"""So far below the newest record that a reader knows of it reads."""
KEYS: Final = 4
KEY_OPERATIONS: Final = 150
"""After so many the clients go on to another key: the judge looks at each key by itself."""
RECREATE_S: Final = (1.0, 4.0)
RECREATE_TIMEOUT_S: Final = 20.0

EXPECTED_SUBJECT: Final = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_STREAM: Final = "Nats-Expected-Last-Sequence"
MSG_ID: Final = "Nats-Msg-Id"
WRONG_LAST_SEQUENCE: Final = (10071, 10164)
LEADER_REPLACED: Final = 10008

Client = Callable[[threading.Event], Awaitable[None]]
"""Works until the event is set."""

_values = count()


def new_value(client: int) -> str:
    """Written once in a process."""
    return f"c{client}-{next(_values)}"


def note(call: Call, error: NatsError) -> None:
    """A refusal promises that nothing was stored, except the one of a leader that is replaced: the next one may have
    the message. Any other error leaves the outcome unknown, too.
    """
    if isinstance(error, APIError) and error.err_code in WRONG_LAST_SEQUENCE:
        last = re.search(r"(\d+)$", error.description or "")
        call.tells(conflict=True, last=int(last[1]) if last else None)
    elif isinstance(error, NoStreamResponseError) or (
        isinstance(error, APIError) and error.err_code != LEADER_REPLACED
    ):
        call.tells(refused=True)


class LogClients:
    """Publish to one subject and read by sequence. What is at an offset is known by ``model`` log."""

    def __init__(self, context: JetStreamContext, history: History, stream: str) -> None:
        self._context = context
        self._history = history
        self.stream = stream
        self.end = 0
        """Of the log, as far as any client was told."""

    def clients(self) -> list[Client]:
        return [self._publish, self._publish, self._publish_until_acked, self._read, self._read]

    async def _publish(self, stop: threading.Event) -> None:
        """Each message once, without an id."""
        client = self._history.client()
        while not stop.is_set():
            value = new_value(client)
            with self._history.operation(client, "log", self.stream, "append", value=value) as call:
                await self._once(call, value, {})
            await asyncio.sleep(PAUSE_S if call.output else RETRY_S)

    async def _publish_until_acked(self, stop: threading.Event) -> None:
        """With an id, again and again: one operation, whose first attempt may be what was stored."""
        client = self._history.client()
        while not stop.is_set():
            value = new_value(client)
            with self._history.operation(
                client, "log", self.stream, "append", value=value
            ) as whole:
                attempt = Call()
                while not stop.is_set() and (not attempt.output or "offset" not in attempt.output):
                    attempt = Call()
                    await self._once(attempt, value, {MSG_ID: value})
                    await asyncio.sleep(PAUSE_S)
                if attempt.output and "offset" in attempt.output:
                    whole.tells(**attempt.output)

    async def _once(self, call: Call, value: str, headers: dict[str, str]) -> None:
        try:
            ack = await self._context.publish(
                self.stream, value.encode(), timeout=ACK_TIMEOUT_S, headers=headers
            )
        except NatsError as error:
            note(call, error)
        else:
            call.tells(offset=ack.seq - 1)
            self.end = max(self.end, ack.seq)

    async def _read(self, stop: threading.Event) -> None:
        """Near the end of the log, and just past it."""
        client = self._history.client()
        while not stop.is_set():
            await self.read(client, random.randrange(max(0, self.end - READ_BACK), self.end + 2))
            await asyncio.sleep(PAUSE_S)

    async def read(self, client: int, offset: int) -> int | None:
        """The offset; None: no answer."""
        with self._history.operation(client, "log", self.stream, "read", offset=offset) as call:
            try:
                found = await self._context.get_msg(self.stream, seq=offset + 1)
            except ServiceUnavailableError:
                call.says_nothing()
            except NotFoundError:
                call.tells(missing=True)
            except NatsError:
                call.says_nothing()
            else:
                call.tells(value=(found.data or b"").decode())
                self.end = max(self.end, offset + 1)
        return None if call.is_void else offset


class RecreatedLogClients(LogClients):
    """The same while the stream is deleted and created again. Its records begin at offset 0 each time."""

    def __init__(self, context: JetStreamContext, history: History, name: str) -> None:
        super().__init__(context, history, name)
        self._name = name
        self._numbers = count(1)

    def clients(self) -> list[Client]:
        return [self._publish, self._publish, self._read, self._recreate]

    async def _recreate(self, stop: threading.Event) -> None:
        client = self._history.client()
        while not stop.is_set():
            await asyncio.sleep(random.uniform(*RECREATE_S))
            if not (await self._delete(client) and await self._create(client)):
                await self._leave()

    async def _leave(self) -> None:
        """Whether the stream is there is not known: go on with another one."""
        self.stream, self.end = f"{self._name}-{next(self._numbers)}", 0
        while not await self._is_created(self.stream):  # noqa: ASYNC110
            await asyncio.sleep(RETRY_S)

    async def _delete(self, client: int) -> bool:
        with self._history.operation(client, "log", self.stream, "delete") as call:
            try:
                async with asyncio.timeout(RECREATE_TIMEOUT_S):
                    await self._context.delete_stream(self.stream)
            except (NatsError, TimeoutError):
                return False
            call.tells()
        self.end = 0
        return True

    async def _create(self, client: int) -> bool:
        with self._history.operation(client, "log", self.stream, "create") as call:
            if not await self._is_created(self.stream):
                return False
            call.tells()
        return True

    async def _is_created(self, name: str) -> bool:
        try:
            async with asyncio.timeout(RECREATE_TIMEOUT_S):
                await self._context.add_stream(StreamConfig(name=name, num_replicas=3))
        except (NatsError, TimeoutError):
            return False
        return True


class ExpectingClients:
    """Publish with an expected last sequence, of a subject or of the stream."""

    def __init__(
        self, context: JetStreamContext, history: History, stream: str, subject: str, header: str
    ) -> None:
        """``subject``: each key's name follows it after a dot, if it ends with one."""
        self._context = context
        self._history = history
        self._stream = stream
        self._subject = subject
        self._header = header
        self._operations = 0

    def clients(self) -> list[Client]:
        return [self._work] * 3

    def subjects(self) -> list[str]:
        """All that there were."""
        if not self._subject.endswith("."):
            return [self._subject]
        generations = range(self._operations // (KEYS * KEY_OPERATIONS) + 1)
        return [f"{self._subject}{i}-{key}" for i in generations for key in range(KEYS)]

    async def _work(self, stop: threading.Event) -> None:
        client = self._history.client()
        last: dict[str, int] = {}
        while not stop.is_set():
            subject = random.choice(self.subjects()[-KEYS:])
            self._operations += 1
            if random.random() < 0.3:
                sequence = await self.read(client, subject)
            else:
                sequence = await self._publish(client, subject, last.get(subject, 0))
            if sequence is not None:
                last[subject] = sequence
            await asyncio.sleep(PAUSE_S)

    async def read(self, client: int, subject: str) -> int | None:
        """The sequence that is the last one; None: no answer."""
        with self._history.operation(client, "expected", subject, "read") as call:
            try:
                found = await self._context.get_last_msg(self._stream, subject)
            except ServiceUnavailableError:
                call.says_nothing()
            except NotFoundError:
                call.tells(missing=True)
                return 0
            except NatsError:
                call.says_nothing()
            else:
                call.tells(sequence=found.seq, value=(found.data or b"").decode())
                return found.seq
        return None

    async def _publish(self, client: int, subject: str, expected: int) -> int | None:
        value = new_value(client)
        given = {"value": value, "expected": expected}
        with self._history.operation(client, "expected", subject, "publish", **given) as call:
            try:
                ack = await self._context.publish(
                    subject,
                    value.encode(),
                    timeout=ACK_TIMEOUT_S,
                    headers={self._header: str(expected)},
                )
            except NatsError as error:
                note(call, error)
                return call.output.get("last") if call.output else None
            call.tells(sequence=ack.seq)
            return int(ack.seq)


class BucketClients:
    """Put, get, create, update and delete keys."""

    def __init__(self, bucket: KeyValue, history: History, name: str) -> None:
        self._bucket = bucket
        self._history = history
        self._name = name
        self._operations = 0

    def clients(self) -> list[Client]:
        return [self._work] * 4

    def names(self) -> list[str]:
        """All that there were."""
        generations = range(self._operations // (KEYS * KEY_OPERATIONS) + 1)
        return [f"{i}-{key}" for i in generations for key in range(KEYS)]

    async def _work(self, stop: threading.Event) -> None:
        client = self._history.client()
        last: dict[str, int] = {}
        while not stop.is_set():
            key = random.choice(self.names()[-KEYS:])
            self._operations += 1
            kind = random.choices(
                ("get", "put", "update", "create", "delete"), (40, 15, 25, 10, 10)
            )[0]
            if kind == "get":
                sequence = await self.get(client, key)
            else:
                sequence = await self._write(client, key, kind, last.get(key, 0))
            if sequence is not None:
                last[key] = sequence
            await asyncio.sleep(PAUSE_S)

    async def get(self, client: int, key: str) -> int | None:
        """The revision; None: no answer."""
        with self._history.operation(client, "bucket", f"{self._name}/{key}", "get") as call:
            try:
                entry = await self._bucket.get(key)
            except ServiceUnavailableError:
                call.says_nothing()
            except KeyNotFoundError as error:
                revision = error.entry.revision if error.entry else None
                call.tells(missing=True, sequence=revision)
                return revision or 0
            except NatsError:
                call.says_nothing()
            else:
                call.tells(value=(entry.value or b"").decode(), sequence=entry.revision)
                return entry.revision
        return None

    async def _write(self, client: int, key: str, kind: str, revision: int) -> int | None:
        value = new_value(client)
        given: dict[str, str | int] = {} if kind == "delete" else {"value": value}
        if kind == "update":
            given["expected"] = revision
        name = f"{self._name}/{key}"
        with self._history.operation(client, "bucket", name, kind, **given) as call:
            try:
                if kind == "delete":
                    await self._bucket.delete(key)
                    call.tells()
                    return None
                if kind == "put":
                    sequence = await self._bucket.put(key, value.encode())
                elif kind == "create":
                    sequence = await self._bucket.create(key, value.encode())
                else:
                    sequence = await self._bucket.update(key, value.encode(), last=revision)
            except KeyWrongLastSequenceError as error:
                last = re.search(r"(\d+)$", error.description or "")
                if kind == "create" or last is None:
                    call.tells(conflict=True)
                else:
                    call.tells(conflict=True, last=int(last[1]))
                    return int(last[1])
            except (NatsError, NoRespondersError) as error:
                if kind != "create":  # it asks several times, and one of them may have counted
                    note(call, error)
            else:
                call.tells(sequence=sequence)
                return int(sequence)
        return None
