"""What a message costs the node itself, without NATS and its router: ``python -m benchmarks.intake``.

Frames as nats-server sends them are fed to the parser, a read at a time; the partitions, logs,
commits and acks are those of a node, and acks go nowhere. Told is the processor time of the whole
process for a message, by user and system: to one of the streams, and each to one of them by chance.
"""

import argparse
import asyncio
import cProfile
import os
import pstats
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple
from uuid import UUID, uuid4

from streamlog.app.run import collect_seldom
from streamlog.clock import wall_ms
from streamlog.config import LogSection
from streamlog.config.node_settings import SyncPolicy
from streamlog.ingest.admission.batches.batch_staging import BatchStagingLimit
from streamlog.ingest.admission.batches.fast_batches import FastBatchLimit
from streamlog.ingest.admission.deduplicator import Deduplicator
from streamlog.ingest.backpressure import InFlightBytes
from streamlog.ingest.frames import IngestEndpoint
from streamlog.ingest.ingest_settings import IngestSettings
from streamlog.ingest.partition_ingest import ConflictAnswers, PartitionIngest
from streamlog.ingest.pub_acks import PubAcks
from streamlog.metadata.commands import Command, Heartbeat, RegisterNode
from streamlog.metadata.controller import create_stream, decide
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.metrics import NodeMetrics
from streamlog.model import NodeId
from streamlog.nats.router import Router
from streamlog.nats.server_connection import ServerConnection
from streamlog.partition.replica_manager import ReplicaManager

STREAMS: Final = 10_000
PARTITIONS: Final = 500
"""Of a stream in the metadata: each stands for a stream of one, which is quicker made."""
MESSAGES: Final = 200_000
READ_BYTES: Final = 64 * 1024
"""What a read brings of the node at its most: fewer than it may."""
PAYLOAD: Final = bytes(100)
HOUR_MS: Final = 3_600_000
IN_FLIGHT_BYTES: Final = 1 << 30
ROUNDS: Final = 5
NODE: Final = NodeId(1)


class Cost(NamedTuple):
    """Microseconds for a message."""

    user: float
    system: float
    wall: float

    def __str__(self) -> str:
        cpu = f"{self.user + self.system:6.2f} us ({self.user:.2f} user, {self.system:.2f} system)"
        return f"{cpu}, {self.wall:.2f} us of the clock"


class AckCount:
    """Where acks go to."""

    def __init__(self) -> None:
        self.count = self.wanted = 0
        self.all = asyncio.Event()

    def want(self, count: int) -> None:
        self.wanted += count
        self.all.clear()

    def write(self, data: bytes) -> None:
        self.count += data.count(b"PUB ")
        if self.count >= self.wanted:
            self.all.set()


class Intake:
    """All of a node between its socket to NATS and its disk."""

    def __init__(self, directory: Path, *, streams: int, sync: SyncPolicy) -> None:
        self._streams = streams
        self.metrics = NodeMetrics()
        self.acks = AckCount()
        self._router = Router()
        self._answers = PubAcks(self.acks, self.metrics, self._router)
        self._room = InFlightBytes(
            in_flight_bytes_max=IN_FLIGHT_BYTES, backpressure_timeout_ms=1_000, metrics=self.metrics
        )
        self._staging = BatchStagingLimit(
            self._room, in_flight_bytes_max=IN_FLIGHT_BYTES, given_up=lambda *_: None
        )
        self._connection = ServerConnection(self._router)
        self._endpoint = IngestEndpoint(self._router)
        self.partitions = ReplicaManager(
            directory,
            node_id=NODE,
            settings=LogSection(sync=sync, checkpoint_interval_ms=HOUR_MS),
            metrics=self.metrics,
        )

    async def open(self) -> None:
        """Every stream is led and bound; its sid is its number."""
        empty = MetadataImage("benchmark")
        await self.partitions.open(empty)
        image = _registered(empty)
        for start in range(0, self._streams, PARTITIONS):
            count = min(PARTITIONS, self._streams - start)
            config = StreamConfig.of(name=f"s{start}", partitions=count)
            decision = create_stream(image, config, new_id=uuid4(), now_ms=0)
            image = image.apply_all(decision.records, offset=image.offset, epoch=1)
        self.partitions.apply(empty, image)
        await self.partitions.settled()
        grown: dict[PartitionIngest, None] = {}
        for sid, partition in enumerate(self.partitions.partitions()):
            ingest = PartitionIngest(
                partition,
                leader_epoch=partition.leader_epoch,
                deduplicator=Deduplicator(partition.tp.stream, duplicate_window_ms=120_000),
                settings=IngestSettings(1 << 20),
                answers=self._answers,
                conflicts=ConflictAnswers(self._answers, self._room, None),
                room=self._room,
                staging=self._staging,
                fast_batches=FastBatchLimit(),
                metrics=self.metrics,
                now_ms=wall_ms,
                grown=grown,
            )
            subscription = self._endpoint.subscribe(b"many.%d" % sid, ingest.target)
            self._connection.bind(sid, subscription)

    async def take(self, reads: Sequence[bytes]) -> Cost:
        """Each read in a turn of the event loop, as from a socket; until all is acknowledged."""
        count = sum(read.count(b"MSG ") for read in reads)
        self.acks.want(count)
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        router, feed = self._router, self._connection.feed
        for read in reads:
            router.begin_turn()
            feed(read)
            router.end_turn()
            await asyncio.sleep(0)
        await self.acks.all.wait()
        wall = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_SELF)
        per = 1e6 / count
        return Cost(
            per * (after.ru_utime - before.ru_utime),
            per * (after.ru_stime - before.ru_stime),
            per * wall,
        )


def _registered(image: MetadataImage) -> MetadataImage:
    """The node is there."""

    def after(command: Command, image: MetadataImage) -> tuple[MetadataImage, int]:
        decision = decide(image, command, now_ms=0, new_id=UUID(int=0), live=frozenset())
        changed = image.apply_all(decision.records, offset=image.offset, epoch=1)
        return changed, int(decision.result.get("node_epoch", 0)) if decision.result else 0

    register = RegisterNode(
        node_id=NODE,
        incarnation=uuid4(),
        directory_id=UUID(int=NODE),
        host="h",
        port=1,
        rack=None,
        stamps=(),
    )
    image, node_epoch = after(register, image)
    beat = Heartbeat(node_id=NODE, node_epoch=node_epoch, offset=image.offset)
    return after(beat, image)[0]


def reads_of(count: int, sids: Iterator[int], read_bytes: int) -> list[bytes]:
    """So many messages, in whole reads."""
    reads, lines, size = [], [], 0
    for number in range(count):
        sid = next(sids)
        line = b"MSG many.%d %d _INBOX.b.%06d %d\r\n%s\r\n" % (
            sid, sid, number, len(PAYLOAD), PAYLOAD,
        )  # fmt: skip
        lines.append(line)
        size += len(line)
        if size >= read_bytes:
            reads.append(b"".join(lines))
            lines, size = [], 0
    return [*reads, b"".join(lines)] if lines else reads


async def measure(options: argparse.Namespace, directory: Path) -> None:
    collect_seldom()
    intake = Intake(directory, streams=options.streams, sync=options.sync)
    await intake.open()
    chosen = random.Random(1)
    one = reads_of(options.messages, iter(lambda: 0, None), options.read)
    many = reads_of(
        options.messages, iter(lambda: chosen.randrange(options.streams), None), options.read
    )
    await intake.take(many)  # the first message to a stream opens its file
    if options.profile:
        profile = cProfile.Profile()
        profile.enable()
        await intake.take(many)
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(40)
        return
    found: dict[str, list[Cost]] = {"to one": [], "to one by chance": []}
    for _ in range(options.rounds):
        found["to one"].append(await intake.take(one))
        found["to one by chance"].append(await intake.take(many))
    for name, costs in found.items():
        print(f"{name:20}", Cost(*(median(each) for each in zip(*costs, strict=True))))
    os._exit(0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.intake", description=__doc__)
    parser.add_argument("--streams", type=int, default=STREAMS)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--sync", default="os", choices=("os", "interval", "commit"))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--read", type=int, default=READ_BYTES, help="bytes")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--dir", type=Path)
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="streamlog-intake-", dir=options.dir))
    try:
        asyncio.run(measure(options, directory))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
