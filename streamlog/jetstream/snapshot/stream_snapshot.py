"""STREAM.SNAPSHOT: a stream is sent to a client, chunk by chunk, as nats-server sends one.

The snapshot ends where the stream ended when it was asked for; what consumers had come to is read before that, so that
none has come further than its stream. Messages that go meanwhile, by retention for example, are not in it.

**Flow.** Each chunk but the last has a reply subject, and only a window of chunks is on its way that the client
has not answered. A client that answers none for ``ACK_S``, or that has no subscription any more, gets a status,
and the snapshot is over. An empty message is the end of the whole.

**Memory.** One block of messages and one part of the log are held, besides what consumers have come to. Records are
put together and compressed in a thread.
"""

import asyncio
import base64
import json
import secrets
from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple

from streamlog.clock import wall_ms
from streamlog.delivery.delivery import RESTORED_STEP_MS
from streamlog.delivery.state_encoding import DeliveryState
from streamlog.errors import StreamlogError
from streamlog.jetstream.connection import Answering
from streamlog.jetstream.consumers.consumer_config import ConsumerConfig
from streamlog.jetstream.consumers.consumer_service import ConsumerRequest, ConsumerService
from streamlog.jetstream.consumers.stream_source import StreamSource
from streamlog.jetstream.errors import ApiRefused, snapshot_failed
from streamlog.jetstream.snapshot.nats_snapshot import (
    BLOCK_BYTES,
    CONSUMERS,
    META,
    META_SUM,
    OWN_STATE,
    S2_HEAD,
    STATE,
    TAR_END,
    MessageBlock,
    SnapshotMessage,
    checksum,
    consumer_state,
    s2_frames,
    tar_file,
)
from streamlog.jetstream.verbs.stream_config import config_to_json
from streamlog.jetstream.verbs.stream_info import rfc3339
from streamlog.metadata.image.metadata_image import StreamImage
from streamlog.model import TopicPartition
from streamlog.record.compiled.message_run import MessageRun

CHUNK_BYTES: Final = 128 * 1024
CHUNK_BYTES_MAX: Final = 1024 * 1024
CHUNK_BYTES_MIN: Final = 1024
WINDOW_BYTES: Final = 8 * 1024 * 1024
WINDOW_BYTES_MAX: Final = 32 * 1024 * 1024
ACK_S: Final = 5.0
"""Without an answer to a chunk, while the window is full: the client stands still."""
INTEREST_S: Final = 2.0
"""A client has so long to subscribe, after the snapshot was granted."""
INTEREST_PAUSE_S: Final = 0.02
MESSAGES: Final = 1_000
"""Are read at once."""
CONSUMERS_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of what all consumers of the stream have come to."""
NO_INTEREST: Final = b"NATS/1.0 408 No Interest\r\n\r\n"
NO_FLOW: Final = b"NATS/1.0 408 No Flow Response\r\n\r\n"
DONE: Final = b"NATS/1.0 204\r\n\r\n"
NO_ACK_WAIT_MS: Final = 30_000


class SnapshotFlow(NamedTuple):
    """How a client wants its chunks."""

    deliver_subject: str
    chunk_bytes: int
    window: int
    """Chunks that are on their way at once."""

    @classmethod
    def of(cls, fields: dict[str, Any], payload_bytes_max: int) -> "SnapshotFlow":
        """Within JetStream's bounds, and those of a message."""
        chunk = fields.get("chunk_size") or CHUNK_BYTES
        chunk = min(max(CHUNK_BYTES_MIN, chunk), CHUNK_BYTES_MAX, payload_bytes_max)
        window = min(
            max(CHUNK_BYTES_MIN, fields.get("window_size") or WINDOW_BYTES), WINDOW_BYTES_MAX
        )
        return cls(fields.get("deliver_subject", ""), chunk, max(1, window // chunk))


class StreamSnapshot:
    """Of one stream with one partition: ``begin``, then ``send``."""

    def __init__(
        self, stream: StreamImage, source: StreamSource, consumers: ConsumerService | None
    ) -> None:
        self._stream = stream
        self._tp = TopicPartition(stream.name, 0)
        self._source = source
        self._consumers = consumers
        self._files: list[tuple[str, bytes]] = []
        self._end = 0
        self._time_s = wall_ms() // 1000

    async def begin(self, *, no_consumers: bool, checks: bool) -> None:
        """Raises ApiRefused, StreamlogError."""
        if not no_consumers and self._consumers is not None:
            await self._read_consumers(self._consumers)
        _, self._end = await self._source.wait(self._tp, self._stream.stream_id, -1)
        if checks:
            try:
                async for _ in self._runs():
                    pass
            except StreamlogError as error:
                raise ApiRefused(snapshot_failed(f"snapshot check failed: {error}")) from None

    def end_with(self, last_sequence: int) -> None:
        """As STREAM.INFO shows it after ``begin``: what is behind it are erasures alone. 0: it is not known."""
        if last_sequence:
            self._end = min(self._end, last_sequence)

    async def _read_consumers(self, consumers: ConsumerService) -> None:
        offset, total, size = 0, 1, 0
        while offset < total:
            request = ConsumerRequest(
                "SNAPSHOT", self._stream.name, self._stream.stream_id, fields={"offset": offset}
            )
            found = await consumers.ask(request)
            total = found["total"]
            offset += max(1, len(found["consumers"]))
            for it in found["consumers"]:
                files = _files_of(self._stream.name, it)
                size += sum(len(data) for _, data in files)
                self._files += files
            if size > CONSUMERS_BYTES_MAX:
                raise ApiRefused(
                    snapshot_failed(
                        "what the stream's consumers have come to is too large; ask with no_consumers"
                    )
                )

    async def send(self, connection: Answering, flow: SnapshotFlow) -> str:
        """Until all is sent, or the client has gone or stands still; why it has failed. Raises nats.errors.Error."""
        subject = f"$JS.SNAPSHOT.ACK.{self._stream.name}.{secrets.token_hex(11)}"
        answered = asyncio.Event()
        unanswered = 0

        def taken(*_: bytes) -> None:
            nonlocal unanswered
            unanswered = max(0, unanswered - 1)
            answered.set()

        deliver, status, failure = flow.deliver_subject, DONE, ""
        end = connection.hear(f"{subject}.>", taken)
        try:
            await _wait_for_interest(connection, deliver)
            number = 0
            async for chunk, is_last in _chunks(self._bytes(), flow.chunk_bytes):
                while unanswered >= flow.window:
                    answered.clear()
                    async with asyncio.timeout(ACK_S):
                        await answered.wait()
                if connection.interest(deliver) == 0:
                    status, failure = NO_INTEREST, "no interest"
                    break
                number += 1
                reply = "" if is_last else f"{subject}.{len(chunk)}.{number}"
                unanswered += not is_last
                await connection.send(deliver, chunk, reply=reply)
                await asyncio.sleep(0)
        except TimeoutError:
            status, failure = NO_FLOW, "no flow response"
        except StreamlogError as error:
            failure = " ".join(str(error).split())
            status = b"NATS/1.0 500 %b\r\n\r\n" % failure.encode(errors="replace")
        finally:
            end()
        await connection.send(deliver, b"", block=status)
        return failure

    async def _bytes(self) -> AsyncIterator[bytes]:
        """The whole, in frames."""
        yield S2_HEAD
        name, config = self._stream.name, self._stream.config
        meta = {"Created": rfc3339(self._stream.created_ms), **config_to_json(config)}
        meta["storage"] = "file"
        own = json.dumps(config.model_dump(mode="json")).encode()
        encoded = json.dumps(meta).encode()
        files = [(META, encoded), (META_SUM, checksum(encoded, name)), (OWN_STATE, own)]
        for path, data in [*files, *self._files]:
            yield await asyncio.to_thread(self._packed, path, data)
        index, last, last_ms = 1, 0, 0
        block = MessageBlock(name, index)
        async for run in self._runs():
            start = 0
            while start < run.count:
                start, last, last_ms = await asyncio.to_thread(_fill, block, run, start)
                if len(block.data) >= BLOCK_BYTES:
                    yield await asyncio.to_thread(self._packed, block.name, block.data)
                    index += 1
                    block = MessageBlock(name, index)
        if last < self._end:
            block.add_erased(self._end, last_ms or wall_ms())
        if block.data:
            yield await asyncio.to_thread(self._packed, block.name, block.data)
        yield s2_frames(TAR_END)

    def _packed(self, path: str, data: bytes | bytearray) -> bytes:
        return s2_frames(b"".join(tar_file(path, data, self._time_s)))

    async def _runs(self) -> AsyncIterator[MessageRun]:
        """The messages below the end, some at a time."""
        offset = 0
        while offset < self._end:
            limit = min(MESSAGES, self._end - offset)
            part = await self._source.read(
                self._tp, self._stream.stream_id, (), offset, limit=limit
            )
            run = part.messages
            if run.count and run.next_offset > self._end:
                kept = run.index_of(self._end)
                run = MessageRun.of([run.message(it) for it in range(kept)])
            if run.count:
                yield run
            if part.next_offset <= offset:
                return
            offset = part.next_offset


def _fill(block: MessageBlock, run: MessageRun, start: int) -> tuple[int, int, int]:
    """From one message on, until the block is full; which one is next, and sequence and time of the last."""
    sequence = time_ms = 0
    while start < run.count and len(block.data) < BLOCK_BYTES:
        subject, sequence, time_ms, headers, payload = run.message(start)
        block.add(SnapshotMessage(sequence, time_ms, subject, headers, payload))
        start += 1
    return start, sequence, time_ms


def _files_of(stream: str, told: dict[str, Any]) -> list[tuple[str, bytes]]:
    """Of one consumer, as its coordinator tells of it."""
    name, config = told["name"], told["config"]
    meta = {"Created": rfc3339(told["created_ms"]), "Name": name, **config}
    encoded = json.dumps(meta).encode()
    state = DeliveryState.decode(base64.b64decode(told["state"]), 10_000_000)
    wait_ms = ConsumerConfig.of_json(config).ack_wait_ms or NO_ACK_WAIT_MS
    theirs = consumer_state(state, now_ms=wall_ms(), wait_ms=wait_ms, step_ms=RESTORED_STEP_MS)
    own = json.dumps({key: told[key] for key in ("created_ms", "record", "given_up", "state")})
    folder = f"{CONSUMERS}{name}/"
    return [
        (folder + META, encoded),
        (folder + META_SUM, checksum(encoded, stream, name)),
        (folder + STATE, theirs),
        (folder + OWN_STATE, own.encode()),
    ]


async def _wait_for_interest(connection: Answering, subject: str) -> None:
    """Until a client of this node has subscribed to the subject itself. A subscription with wildcards says nothing:
    clients have one for the answers to all their requests, and what comes before their own is lost. Where the
    client is behind a link, or at a nats-server, the whole time is waited for.
    """
    for _ in range(int(INTEREST_S / INTEREST_PAUSE_S)):
        if connection.is_subscribed(subject):
            return
        await asyncio.sleep(INTEREST_PAUSE_S)


async def _chunks(pieces: AsyncIterator[bytes], size: int) -> AsyncIterator[tuple[bytes, bool]]:
    """All of the same size but the last."""
    rest = bytearray()
    async for piece in pieces:
        rest += piece
        at = 0
        while len(rest) - at > size:
            yield bytes(rest[at : at + size]), False
            at += size
        del rest[:at]
    yield bytes(rest), True
