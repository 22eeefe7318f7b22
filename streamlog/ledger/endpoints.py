"""The ledger's endpoints over NATS: broadcast, deliver and info of each channel. See ``protocol``.

``BlockDelivery`` sends blocks to one reader, no faster than the reader takes them.
"""

import asyncio
import contextlib
import functools
import itertools
import json
import logging
import time
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Final

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from streamlog.clock import wall_ms
from streamlog.condition import Condition
from streamlog.config import NatsSection
from streamlog.errors import Overloaded, RequestTimedOut, StreamlogError
from streamlog.ingest.nats.options import NatsOptions
from streamlog.ledger.channel.broadcast import BroadcastAck, Broadcaster
from streamlog.ledger.channel.channel import Channel
from streamlog.ledger.core.encoding import decode_header
from streamlog.ledger.core.entry import KIND_HEADER, SIGNATURE_HEADER, SIGNER_HEADER
from streamlog.ledger.core.signing import Signer, signature_text
from streamlog.ledger.deliver import DeliverRequest, check_reader, deliver
from streamlog.ledger.protocol import (
    ALIVE_S,
    ANSWER_BLOCKS,
    ANSWER_BYTES,
    END_HEADER,
    HEIGHT_HEADER,
    NUMBER_HEADER,
    PART_HEADER,
    SILENCE_S,
    WINDOW,
    ack_json,
    error_json,
    may_answer_at,
    message_of,
    subject,
)
from streamlog.ledger.storage.store import StoredBlock
from streamlog.nats_tools.client import NatsClient

HEADERS_BYTES: Final = 4 * 1024
"""Room in a message for the headers."""


class BlockDelivery:
    """One reader's. ``run`` by one task; ``answered`` by the subscription to the reader's answers."""

    def __init__(
        self,
        client: Client,
        channel: Channel,
        request: DeliverRequest,
        *,
        inbox: str,
        flow: str,
        signer: Signer | None,
    ) -> None:
        """``flow``: the subject of the reader's answers."""
        self._client = client
        self._channel = channel
        self._request = request
        self._inbox = inbox
        self._flow = flow
        self._signer = signer
        self._open = 0  # answers that are yet to come
        self._changed = asyncio.Event()
        self._is_gone = False
        self._next = 0  # block, after those that were sent
        self._unanswered_bytes = self._unanswered_blocks = 0

    def answered(self, *, is_gone: bool) -> None:
        """``is_gone``: the reader is not there."""
        self._open -= 1
        self._is_gone |= is_gone
        self._changed.set()

    async def run(self) -> None:
        """Until the last block, or until the reader is gone."""
        try:
            await self._send_height()
            await self._send_blocks()
        except (_Gone, nats.errors.Error):
            return
        except StreamlogError as error:
            await self._send_end(error_json(error))
            return
        await self._send_end(b"")

    async def _send_blocks(self) -> None:
        blocks = deliver(self._channel.ledger, self._request, alive_s=ALIVE_S)
        async with contextlib.aclosing(blocks):
            async for run in blocks:
                if run:
                    await self._send_run(run)
                else:
                    await self._send_height()

    async def _send_run(self, run: list[StoredBlock]) -> None:
        for block in run:
            await self._send_block(block)
            self._next = block.number + 1
        self._channel.observer.delivered(
            self._channel.name, len(run), sum(len(block.data) for block in run)
        )

    async def _send_block(self, block: StoredBlock) -> None:
        room = self._client.max_payload - HEADERS_BYTES
        count = max(1, -(-len(block.data) // room))
        headers = {NUMBER_HEADER: str(block.number), **self._signature(block)}
        for number in range(count):
            part = block.data[number * room : (number + 1) * room]
            if count > 1:
                headers[PART_HEADER] = f"{number}/{count}"
            self._unanswered_bytes += len(part)
            self._unanswered_blocks += 1
            asks = (
                self._unanswered_bytes >= ANSWER_BYTES or self._unanswered_blocks >= ANSWER_BLOCKS
            )
            await self._send(part, headers, asks=asks)
            headers = {NUMBER_HEADER: str(block.number)}

    def _signature(self, block: StoredBlock) -> dict[str, str]:
        """The node's; the same each time, so it need not be kept."""
        if self._signer is None:
            return {}
        signature = self._signer.sign_block(_header_hash(block.data))
        return {
            SIGNER_HEADER: signature.node,
            SIGNATURE_HEADER: signature_text(signature.signature).decode(),
        }

    async def _send_height(self) -> None:
        await self._send(b"", {HEIGHT_HEADER: str(self._channel.ledger.height)}, asks=True)

    async def _send_end(self, payload: bytes) -> None:
        await self._client.publish(self._inbox, payload, headers={END_HEADER: str(self._next)})

    async def _send(self, payload: bytes, headers: dict[str, str], *, asks: bool) -> None:
        if asks:
            await self._wait_for_room()
            self._open += 1
            self._unanswered_bytes = self._unanswered_blocks = 0
        reply = self._flow if asks else ""
        await self._client.publish(self._inbox, payload, reply=reply, headers=headers)

    async def _wait_for_room(self) -> None:
        """Raises _Gone; RequestTimedOut for a reader that answers no more."""
        try:
            async with asyncio.timeout(SILENCE_S):
                while self._open >= WINDOW and not self._is_gone:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise RequestTimedOut(
                f"the reader has not answered for {SILENCE_S:.0f} s; ask again from block"
                f" {self._next} on"
            ) from None
        if self._is_gone:
            raise _Gone


class _Gone(Exception):
    """The reader does not listen any more."""


def _header_hash(encoded: bytes) -> bytes:
    return sha256(encoded[: decode_header(encoded)[1]]).digest()


logger = logging.getLogger(__name__)

LEDGER_NATS_TROUBLE: Final = Condition(
    "SL-0706",
    "NATS trouble",
    "see whether nats-server runs there, and what its log says",
    meaning="The ordering node is not connected to NATS, or NATS refuses something.",
)
LEDGER_REPLY_REFUSED: Final = Condition(
    "SL-0716",
    "a request is not answered at such a subject",
    "correct the client: it needs an inbox for its answers",
    meaning="The reply subject of a request is one of the ledger's own, or one that nats-server "
    "obeys.",
)

QUEUE: Final = "ledger"
"""The queue group in which the nodes share what is for any of them."""
BROADCASTS_MAX: Final = 10_000
"""Under way at once; more are refused with Overloaded."""
DELIVERIES_MAX: Final = 1_000
"""Of each node."""

Handler = Callable[[Channel, Msg], Awaitable[None]]


class NatsEndpoints:
    """``begin``, ``connect``, and ``open`` for each channel."""

    def __init__(
        self,
        section: NatsSection,
        *,
        node: str,
        signer: Signer | None = None,
        broadcaster: Broadcaster | None = None,
    ) -> None:
        self.client: Client | None = None
        """Connected, or about to be again; for others in this process."""
        self._section = section
        self._node = node
        self._signer = signer
        self._broadcaster = broadcaster or Broadcaster()
        self._tasks: asyncio.TaskGroup | None = None
        self._broadcasts = 0
        self._deliveries: dict[str, BlockDelivery] = {}
        self._numbers = itertools.count()
        self._flow = ""
        self._answers: list[tuple[Msg, bytes]] = []  # at most ``BROADCASTS_MAX``
        self._to_answer = asyncio.Event()
        self._answering: asyncio.Task[None] | None = None
        self._connected = asyncio.Event()
        self._trouble = ""  # as last told

    async def connect(self) -> None:
        """There is a NATS server, or one is waited for. Raises ConfigError."""
        access = NatsOptions(self._section)
        self.client = NatsClient(access)
        name = f"streamlog-ledger-{self._node}"
        await self.client.connect(
            **access.options(name), error_cb=self._tell, reconnected_cb=self._reconnected
        )
        self._flow = self.client.new_inbox()
        await self.client.subscribe(f"{self._flow}.*", cb=self._answered)
        self._connected.set()

    async def _tell(self, error: Exception) -> None:
        """Once, however often it is tried again."""
        problem = str(error) or type(error).__name__
        if problem != self._trouble:
            self._trouble = problem
            logger.warning(LEDGER_NATS_TROUBLE, extra={"problem": problem})

    async def _reconnected(self) -> None:
        self._trouble = ""
        logger.info("NATS is back")

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Carries out in ``tasks`` from now on what is asked for."""
        self._tasks = tasks
        self._answering = tasks.create_task(self._answer_all())

    async def close(self) -> None:
        """Nothing is listened to any more."""
        self._tasks = None
        if self._answering is not None:
            self._answering.cancel()
        if self.client is not None:
            await self.client.close()

    async def open(self, channel: Channel) -> None:
        """Its subjects are listened to from now on; waits for NATS."""
        await self._connected.wait()
        assert self.client is not None, "connected"
        verbs: dict[str, Handler] = {
            "broadcast": self._broadcast,
            "deliver": self._deliver,
            "info": self._info,
        }
        for verb, handler in verbs.items():
            callback = _of(channel, handler)
            shared, own = subject(channel.name, verb), subject(channel.name, verb, self._node)
            await self.client.subscribe(shared, queue=QUEUE, cb=callback)
            await self.client.subscribe(own, cb=callback)
        for _ in range(2):  # nats-py's PING may overtake what it was given before
            await self.client.flush()

    async def _broadcast(self, channel: Channel, message: Msg) -> None:
        if self._broadcasts >= BROADCASTS_MAX or self._tasks is None:
            problem = f"{BROADCASTS_MAX} broadcasts are under way; try again, or another node"
            await _answer(message, error_json(Overloaded(problem)))
            return
        self._broadcasts += 1
        if not channel.ready.is_set() or KIND_HEADER in (message.headers or {}):
            self._tasks.create_task(self._broadcast_one(channel, message))
            return
        started = time.perf_counter()
        try:
            wanted = message_of(message.data, message.headers)
            offset = self._broadcaster.begin(channel, wanted)
        except StreamlogError as error:
            self._settle(channel, message, started, error)
        else:
            offset.add_done_callback(functools.partial(self._done, channel, message, started))

    def _done(
        self, channel: Channel, message: Msg, started: float, offset: "asyncio.Future[int]"
    ) -> None:
        """A task for each would take longer than all the rest of it."""
        error = offset.exception()
        assert error is None or isinstance(error, StreamlogError), "that is all it raises"
        self._settle(channel, message, started, offset.result() if error is None else error)

    def _settle(
        self, channel: Channel, message: Msg, started: float, outcome: int | StreamlogError
    ) -> None:
        """Count it, and have it answered."""
        seconds, observer = time.perf_counter() - started, channel.observer
        if isinstance(outcome, int):
            observer.broadcast(channel.name, "ok", seconds, outcome)
            answer = ack_json(BroadcastAck(channel.name, outcome), self._node)
        else:
            observer.broadcast(channel.name, type(outcome).__name__, seconds, None)
            answer = error_json(outcome)
        self._answers.append((message, answer))
        self._to_answer.set()

    async def _answer_all(self) -> None:
        """In the order in which they were settled."""
        while True:
            await self._to_answer.wait()
            self._to_answer.clear()
            answers, self._answers = self._answers, []
            for message, answer in answers:
                await _answer(message, answer)
                self._broadcasts -= 1

    async def _broadcast_one(self, channel: Channel, message: Msg) -> None:
        try:
            wanted = message_of(message.data, message.headers)
            ack = await self._broadcaster.broadcast(channel, wanted)
            answer = ack_json(ack, self._node)
        except StreamlogError as error:
            answer = error_json(error)
        finally:
            self._broadcasts -= 1
        await _answer(message, answer)

    async def _info(self, channel: Channel, message: Msg) -> None:
        await _answer(message, json.dumps(channel.info()).encode())

    async def _deliver(self, channel: Channel, message: Msg) -> None:
        if not message.reply or self._tasks is None or self.client is None:
            return
        try:
            request = DeliverRequest.parse(message.data)
            check_reader(channel.config, request, message, wall_ms())
            if len(self._deliveries) >= DELIVERIES_MAX:
                raise Overloaded(f"{DELIVERIES_MAX} deliveries are under way; ask another node")
            channel.ledger  # noqa: B018 (raises while it is not open)
        except StreamlogError as error:
            await _answer(message, error_json(error), {END_HEADER: "0"})
            return
        name = str(next(self._numbers))
        delivery = BlockDelivery(
            self.client,
            channel,
            request,
            inbox=message.reply,
            flow=f"{self._flow}.{name}",
            signer=self._signer,
        )
        self._deliveries[name] = delivery
        self._tasks.create_task(self._deliver_one(name, delivery))

    async def _deliver_one(self, name: str, delivery: BlockDelivery) -> None:
        try:
            await delivery.run()
        finally:
            del self._deliveries[name]

    async def _answered(self, message: Msg) -> None:
        delivery = self._deliveries.get(message.subject.rpartition(".")[2])
        if delivery is not None:
            delivery.answered(is_gone=(message.headers or {}).get("Status") == "503")


def _of(channel: Channel, handler: Handler) -> Callable[[Msg], Awaitable[None]]:
    async def handle(message: Msg) -> None:
        if may_answer_at(message.reply):
            await handler(channel, message)
        else:
            extra = {"subject": message.subject, "reply": message.reply}
            logger.warning(LEDGER_REPLY_REFUSED, extra=extra)

    return handle


async def _answer(message: Msg, payload: bytes, headers: dict[str, str] | None = None) -> None:
    """If a client waits for it, and NATS is there."""
    if not message.reply:
        return
    with contextlib.suppress(nats.errors.Error):
        await message._client.publish(message.reply, payload, headers=headers)
