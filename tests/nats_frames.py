"""What a nats-server sends, built by hand; and what a parser made of it, taken apart."""

import struct
from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple

from streamlog.ingest import frames
from streamlog.ingest.frames import IngestEndpoint, Partitioner, RecordCollector
from streamlog.nats.router import Callback, Router, Subscription
from streamlog.nats.server_connection import ServerConnection
from streamlog.record.codec import Record, iter_records
from streamlog.record.compiled import keys
from tests.oracles import collector as oracle_collector
from tests.oracles import frames as oracle_frames
from tests.oracles import keys as oracle_keys
from tests.oracles import partitioner as oracle_partitioner

SID: Final = 3


FRAME_BYTES_MAX: Final = oracle_frames.FRAME_BYTES_MAX
Whole = tuple[int, bytes, bytes, bytes, bytes]


class FrameParser:
    """A ``ServerConnection`` and the ``IngestEndpoint`` behind it, to be fed as the oracle is."""

    def __init__(
        self, *, frame_bytes_max: int = FRAME_BYTES_MAX, whole: Collection[int] | None = None
    ) -> None:
        """``whole``: messages of these sids are kept as they are."""
        router = Router()
        self.connection = ServerConnection(router, payload_bytes_max=frame_bytes_max)
        self.connection.session = self
        self._router = router
        self._endpoint = IngestEndpoint(router)
        self._controls: list[tuple[str, bytes]] = []
        self._error: Exception | None = None
        self._messages: list[Whole] = []
        self.pings = 0
        """That were answered."""
        for sid in whole or ():
            self._keep(sid, Callback(router, failed=self.violated))

    def _keep(self, sid: int, callback: Callback) -> None:
        def taken(*message: bytes) -> None:
            subject, reply, block, payload = message
            self._messages.append((sid, subject, reply, block, payload))

        self.connection.bind(sid, Subscription(callback, b"any", target=taken))

    @property
    def dropped(self) -> int:
        return self.connection.dropped

    def bind(self, sid: int, target: RecordCollector | Partitioner) -> None:
        """The subject is the server's concern: what comes for the sid goes to its target."""
        subscription = self._endpoint.subscribe(b"sid.%d" % sid, target)
        self._router.remove(subscription)
        self.connection.bind(sid, subscription)

    def unbind(self, sid: int) -> None:
        self.connection.unbind(sid)

    def feed(self, data: bytes | memoryview) -> list[RecordCollector]:
        """One turn of the event loop."""
        touched: list[RecordCollector] = []
        if self._error is None:
            self._router.begin_turn()
            try:
                self.connection.feed(data)
            except Exception as error:
                self._error = error
            touched = self._endpoint.take_touched()
            self._router.end_turn()
            said = self.connection.take_output()
            self.pings += said.count(b"PONG\r\n")
            assert not said.replace(b"PONG\r\n", b""), "it says nothing but PONG"
        if self._error is not None and not (touched or self._controls or self._messages):
            raise self._error
        return touched

    def take_controls(self) -> list[tuple[str, bytes]]:
        controls, self._controls = self._controls, []
        if self._error is not None and not controls:
            raise self._error
        return controls

    def take_messages(self) -> list[Whole]:
        messages, self._messages = self._messages, []
        return messages

    # As the connection's session

    def ponged(self) -> None:
        self._controls.append(("PONG", b""))

    def informed(self, info: bytes) -> None:
        self._controls.append(("INFO", info.strip(b" \t")))

    def refused(self, words: bytes) -> None:
        self._controls.append(("ERR", words.strip(b" \t").strip(b"'")))

    def violated(self, error: Exception) -> None:
        self._error = error

    def too_slow(self) -> None:
        raise AssertionError

    def broken(self, error: OSError) -> None:
        raise AssertionError from error


class Twin(NamedTuple):
    """One of the two implementations of what takes in a nats-server's messages."""

    FrameParser: Any
    RecordCollector: Any
    Partitioner: Any
    murmur2: Any


PLAIN: Final = Twin(
    oracle_frames.FrameParser,
    oracle_collector.RecordCollector,
    oracle_partitioner.Partitioner,
    oracle_keys.murmur2,
)
COMPILED: Final = Twin(FrameParser, frames.RecordCollector, frames.Partitioner, keys.murmur2)


def msg(
    payload: bytes = b"", subject: bytes = b"orders", reply: bytes = b"", sid: int = SID
) -> bytes:
    fields = b" ".join(filter(None, (subject, b"%d" % sid, reply)))
    return b"MSG %b %d\r\n%b\r\n" % (fields, len(payload), payload)


def hmsg(block: bytes, payload: bytes = b"", reply: bytes = b"") -> bytes:
    fields = b" ".join(filter(None, (b"orders", b"%d" % SID, reply)))
    sizes = b"%d %d" % (len(block), len(block) + len(payload))
    return b"HMSG %b %b\r\n%b%b\r\n" % (fields, sizes, block, payload)


def block(*lines: bytes) -> bytes:
    return b"".join(line + b"\r\n" for line in (b"NATS/1.0", *lines, b""))


def records(inflow: Any) -> list[Record]:
    if not inflow.run.count:
        return []
    return list(iter_records(inflow.run.seal(base_offset=0, leader_epoch=0, timestamp_ms=0)))


def unpacked(replies: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position < len(replies):
        delta, size = struct.unpack_from("<IH", replies, position)
        position += 6 + size
        yield delta, replies[position - size : position]
