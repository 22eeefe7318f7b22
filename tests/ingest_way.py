"""An ingest with all that it needs, and the frames that nats-server would send it."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from streamlog.ingest.admission.batches.batch_staging import BatchStagingLimit
from streamlog.ingest.admission.batches.fast_batches import FastBatchLimit
from streamlog.ingest.admission.deduplicator import Deduplicator
from streamlog.ingest.admission.refusal import NOT_ENOUGH_REPLICAS
from streamlog.ingest.backpressure import InFlightBytes
from streamlog.ingest.ingest_settings import IngestSettings
from streamlog.ingest.partition_ingest import ConflictAnswers, PartitionIngest
from streamlog.ingest.pub_acks import PubAcks
from streamlog.metrics import NodeMetrics
from streamlog.nats.router import Router
from streamlog.record.codec import iter_records
from tests.led_partition import FakePartition, as_partition
from tests.nats_frames import FrameParser


class Written(list[bytes]):
    """What was written to a connection."""

    def write(self, data: bytes) -> None:
        self.append(data)


class TurnsWritten(Written):
    """To one that gathers what is written in a turn of the event loop."""

    is_gathering = False

    def write(self, data: bytes) -> None:
        if self and self.is_gathering:
            self[-1] += data
        else:
            self.append(data)
            self.is_gathering = True
            asyncio.get_running_loop().call_soon(self.end_turn)

    def end_turn(self) -> None:
        self.is_gathering = False


class StrictIngest(PartitionIngest):
    """Raises what others log when messages could not be taken."""

    __slots__ = ()

    def drop(self) -> None:
        super().drop()
        raise  # noqa: PLE0704  (what ``take`` has caught)


class Way:
    """An ingest with all that it needs."""

    def __init__(
        self,
        *,
        in_flight_bytes_max: int = 10_000,
        message_bytes_max: int = 100,
        subjects: Sequence[str] = (),
        partition: FakePartition | None = None,
        **settings: Any,
    ) -> None:
        """``partition``: one that a former leader has left."""
        self.now_ms = 1_000_000
        self.partition = partition or FakePartition()
        self.metrics = NodeMetrics()
        self.written = TurnsWritten()
        self.answers = PubAcks(self.written, self.metrics, Router())
        self.room = InFlightBytes(
            in_flight_bytes_max=in_flight_bytes_max, backpressure_timeout_ms=1, metrics=self.metrics
        )
        self.given_up: list[tuple[bytes, str]] = []
        self.staging = BatchStagingLimit(
            self.room,
            in_flight_bytes_max=in_flight_bytes_max,
            given_up=lambda _, batch_id, reason: self.given_up.append((batch_id, reason)),
        )
        self.fast_batches = FastBatchLimit()
        self.ingest = StrictIngest(
            as_partition(self.partition),
            deduplicator=Deduplicator("orders", duplicate_window_ms=120_000),
            subjects=subjects,
            settings=IngestSettings(message_bytes_max, **settings),
            answers=self.answers,
            conflicts=ConflictAnswers(self.answers, self.room, None),
            room=self.room,
            staging=self.staging,
            fast_batches=self.fast_batches,
            metrics=self.metrics,
            now_ms=lambda: self.now_ms,
            grown={},
        )
        self.parser = FrameParser()
        self.parser.bind(1, self.ingest.inflow)

    def read(self, *messages: bytes) -> None:
        """One read of the socket."""
        for inflow in self.parser.feed(b"".join(messages)):
            assert inflow is self.ingest.inflow
            self.ingest.take()

    def told(self) -> list[tuple[str, Any]]:
        """(reply subject, JSON) of what was answered since."""
        return [
            (reply, json.loads(payload) if payload else None) for reply, payload in self.answered()
        ]

    def answered(self) -> list[tuple[str, bytes]]:
        """(reply subject, payload)."""
        data, self.written[:] = b"".join(self.written), []
        found = []
        while data:
            line, _, data = data.partition(b"\r\n")
            command, reply, size = line.split()
            assert command == b"PUB"
            found.append((reply.decode(), data[: int(size)]))
            assert data[int(size) : int(size) + 2] == b"\r\n"
            data = data[int(size) + 2 :]
        return found

    def refused(self) -> list[tuple[str, int]]:
        """(reply subject, err_code)."""
        return [(reply, answer["error"]["err_code"]) for reply, answer in self.told()]

    def headers(self) -> list[tuple[tuple[str, bytes | None], ...]]:
        """Of each record."""
        return [
            record.headers for batch in self.partition.batches for record in iter_records(batch)
        ]

    def refusal_json(self) -> dict[str, object]:
        """Too few replicas."""
        code, err_code, description, _ = NOT_ENOUGH_REPLICAS
        error = {"code": code, "err_code": err_code, "description": description}
        return {"error": error, "stream": "orders", "seq": 0}

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"streamlog_{name}_total", labels) or 0


def message(
    reply: str = "", payload: bytes = b"x", *, subject: str = "orders", **headers: str
) -> bytes:
    block = b""
    if headers:
        lines = "".join(f"{key.replace('_', '-')}: {text}\r\n" for key, text in headers.items())
        block = f"NATS/1.0\r\n{lines}\r\n".encode()
    sizes = f"{len(block)} {len(block) + len(payload)}" if block else f"{len(payload)}"
    verb = "HMSG" if block else "MSG"
    target = f"{reply} " if reply else ""
    return f"{verb} {subject} 1 {target}{sizes}\r\n".encode() + block + payload + b"\r\n"
