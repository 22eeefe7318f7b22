"""How long a node with much to keep takes to start: 20 GB in 2,000 segments, none of them cached.

The log is written by our own log package, as the node would write it, and every byte is there.
"""

import os
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.case import Case, Measurement, Metric, Target, Variant
from benchmarks.connection import BenchmarkError
from benchmarks.lone_node import LoneNode
from benchmarks.publisher import payload
from benchmarks.side import STREAM, SUBJECTS, Sides
from streamlog.log.log import PartitionLog
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.record.batch import read_header
from streamlog.record.codec import RecordRun

NAME: Final = "starting"
EMPTY: Final = "empty"
SEGMENTS: Final = 2_000
SEGMENT_BYTES: Final = 10_000_000
RECORDS: Final = 16
RECORD_BYTES: Final = 4096
"""So that a batch is as large as one of a busy node."""
SPARE_BYTES: Final = 2_000_000_000
AGE_MS: Final = 2 * 86_400_000
PUBLISHING_S: Final = 1.0

START = Metric("start_s", "s until ready", digits=2, lower_is_better=True)


class BigLog:
    """A node with one stream, which goes with the case."""

    def __init__(self) -> None:
        self._node: LoneNode | None = None
        self._records = 0

    @property
    def node(self) -> LoneNode:
        assert self._node is not None, "prepared"
        return self._node

    def prepare(self, sides: Sides, scale: float) -> None:
        self._node = node = sides.own(NAME, LoneNode)
        node.start()
        config = {"name": STREAM, "subjects": [SUBJECTS], "storage": "file", "num_replicas": 1}
        metadata = {"streamlog.segment_bytes": str(SEGMENT_BYTES)}
        node.ask(f"STREAM.CREATE.{STREAM}", {**config, "metadata": metadata})
        node.end()
        self._records = fill(node.streams / STREAM / "0", max(2, int(SEGMENTS * scale)))
        node.start()  # once, so that it has found all of it
        self.wait_whole()
        node.end()

    def clear(self, sides: Sides) -> None:
        sides.drop(NAME)

    def with_nothing(self, sides: Sides, scale: float) -> Measurement:
        """A node that has never been told of a stream, at its second start."""
        node = sides.own(EMPTY, LoneNode)
        try:
            node.start()
            node.end()
            begun = time.perf_counter()
            node.start()
            return {"start_s": time.perf_counter() - begun}
        finally:
            sides.drop(EMPTY)

    def after_a_stop(self, sides: Sides, scale: float) -> Measurement:
        self.node.start()
        self.node.end()
        return self._start()

    def after_a_kill(self, sides: Sides, scale: float) -> Measurement:
        """In the middle of publishing."""
        self.node.start()
        command = [sys.executable, "-m", "benchmarks.publisher", "acked", "--nats", self.node.nats]
        command += ["--count", "100000000"]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as publisher:
            try:
                time.sleep(PUBLISHING_S)
                self._records = max(self._records, self._stored())
                self.node.kill()
            finally:
                publisher.kill()
        return self._start()

    def _start(self) -> Measurement:
        forget_cached(self.node.streams)
        begun = time.perf_counter()
        self.node.start()
        self.wait_whole()
        seconds = time.perf_counter() - begun
        self.node.end()
        return {"start_s": seconds}

    def wait_whole(self) -> None:
        """Every record is told of."""
        deadline = time.monotonic() + 60
        while (stored := self._stored()) < self._records:
            if time.monotonic() > deadline:
                raise BenchmarkError(f"{stored} of {self._records} records are there")

    def _stored(self) -> int:
        state = self.node.ask(f"STREAM.INFO.{STREAM}")["state"]
        assert isinstance(state, dict)
        return int(state["messages"])


def fill(folder: Path, segments: int) -> int:
    """So many segments of batches, of the day before yesterday, synced; how many records.

    Were they of the last two minutes, the node would look for message ids in all of them.
    """
    bodies = [payload(RECORD_BYTES, seed=number) for number in range(RECORDS)]
    disk = OsDisk()
    settings = LogSettings(segment_bytes=SEGMENT_BYTES)
    log = PartitionLog.open(folder, settings, disk=disk, files=FilePool(disk, 16))
    try:
        epoch, now_ms = max(0, log.epochs.latest), time.time_ns() // 1_000_000
        for number in range(1, segments + 1):
            time_ms = now_ms - AGE_MS + AGE_MS // 2 * number // segments
            batch = bytearray(one_batch(bodies, epoch, time_ms))
            while log.size_bytes < number * SEGMENT_BYTES:
                # A batch's checksum does not cover where it lies.
                struct.pack_into(">q", batch, 0, log.log_end_offset)
                log.append(bytes(batch), time_ms)
        ticket = log.begin_sync()
        if ticket is not None:
            ticket.run()
            log.finish_sync(ticket)
        return log.log_end_offset
    finally:
        log.close()


def one_batch(bodies: Sequence[bytes], leader_epoch: int, time_ms: int) -> bytes:
    run = RecordRun()
    for body in bodies:
        run.append(None, body, [(b"subject", b"bench.a")])
    batch = run.seal(base_offset=0, leader_epoch=leader_epoch, timestamp_ms=time_ms)
    assert read_header(batch).record_count == RECORDS
    return batch


def forget_cached(folder: Path) -> None:
    """What the system keeps of these files in memory; what is not written back yet, it keeps."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)


def start_case() -> Case[Sides]:
    log = BigLog()
    variants = (
        Variant("with nothing to keep", log.with_nothing),
        Variant("after a clean stop", log.after_a_stop, (Target(START, 2.0, absolute=True),)),
        Variant(
            "after kill -9 while publishing", log.after_a_kill, (Target(START, 5.0, absolute=True),)
        ),
    )
    wanted = SEGMENTS * SEGMENT_BYTES + SPARE_BYTES
    title = "Start with 20 GB in 2,000 segments"
    return Case(
        "start", title, (START,), variants, log.prepare, log.clear, rounds=3, disk_bytes=wanted
    )


CASES: Final = (start_case(),)
