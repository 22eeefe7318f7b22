"""A stream that takes in two others, by seed, over real files. Its node is killed; its messages age, are purged, or
emptied by consumers; what its origins send is lost, doubled and swapped, and they are deleted and made again.

Judged by all that its log ever had: each message of an origin once, in the order of its origin, and none left out.
"""

import asyncio
import json
import os
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from streamlog.clock import wall_ms
from streamlog.control.messages.purge import purge
from streamlog.errors import StreamlogError
from streamlog.jetstream.mirroring import fed_partition
from streamlog.jetstream.mirroring.fed_partition import FedPartition
from streamlog.jetstream.mirroring.origin_batches import source_place
from streamlog.jetstream.mirroring.origin_reader import (
    PAUSE_MS_MAX,
    SILENCE_MS,
    FlowControl,
    OriginMessage,
    OriginReader,
    ReaderStep,
)
from streamlog.metadata.stream.stream_origin import StreamOrigin
from streamlog.partition.maintenance.log_start import free_front
from streamlog.partition.maintenance.retention_task import retain
from streamlog.partition.partition import Partition
from streamlog.partition.replica_manager import ReplicaManager
from streamlog.record.batch import batches
from streamlog.record.codec import iter_records
from streamlog.record.offset_set import OffsetSet
from tests.partition_world import World, publish, tp

SEEDS: Final = range(20)
STEPS: Final = 120
TICK_MS: Final = 700
DAY_MS: Final = 86_400_000
ORIGINS: Final = (StreamOrigin("one", api="$JS.hub.API"), StreamOrigin("two", api="$JS.hub.API"))
SOURCES: Final = json.dumps([it.json() for it in ORIGINS])


class Stored(NamedTuple):
    """A message of an origin."""

    identity: str
    sequence: int


class Origin:
    """Messages, and what a consumer of them sends: the last that was asked for."""

    def __init__(self, rng: random.Random, name: str) -> None:
        self._rng = rng
        self._name = name
        self.generation = 0
        self.removed = set[Stored]()
        self.sequences: list[int] = []
        self.last = 0
        self._deliver = b""
        self._next = self._number = 0

    @property
    def identity(self) -> str:
        return f"{self._name}{self.generation}"

    def publish(self, count: int) -> None:
        self.sequences += range(self.last + 1, self.last + count + 1)
        self.last += count

    def remove_some(self) -> None:
        gone = {it for it in self.sequences if self._rng.random() < 0.2}
        self.removed |= {Stored(self.identity, it) for it in gone}
        self.sequences = [it for it in self.sequences if it not in gone]

    def make_again(self) -> None:
        """The consumer has gone with the stream before."""
        self.generation += 1
        self.sequences, self.last, self._deliver = [], 0, b""

    def answer(self, payload: bytes, block: bytes) -> tuple[bytes, bytes]:
        """To CONSUMER.CREATE."""
        wanted = block.split(b"Nats-Stream-Identity: ")[1].split(b"\r\n")[0].decode()
        told = b"NATS/1.0\r\nNats-Stream-Identity: %b\r\n\r\n" % self.identity.encode()
        if wanted not in ("", self.identity):
            return json.dumps({"error": {"code": 400, "err_code": 10225}}).encode(), told
        config = json.loads(payload)["config"]
        self._deliver = config["deliver_subject"].encode()
        self._next, self._number = config.get("opt_start_seq", 1), 0
        return json.dumps({"name": "c", "num_pending": 0}).encode(), told

    def send(self, say: Callable[[bytes, bytes, bytes], None]) -> None:
        """The next message, or a heartbeat."""
        if not self._deliver:
            return
        found = next((it for it in self.sequences if it >= self._next), None)
        if found is None:
            head = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: %d\r\n\r\n" % self._number
            say(self._deliver, b"", head)
            return
        self._number += 1
        self._next = found + 1
        say(self._deliver, b"$JS.ACK.%b.c.1.%d.%d.0.0" % (b"O", found, self._number), b"")


class Feed:
    """One source of one leadership."""

    def __init__(
        self, story: "Story", origin: StreamOrigin, fed: FedPartition, position: int
    ) -> None:
        self._rng, self._origin, self._fed = story.rng, origin, fed
        self._served = story.origins[origin.name]
        self._way = deque[tuple[bytes, bytes, bytes, bytes]]()
        self._listening = set[str]()
        self._taken: list[OriginMessage] = []
        self.reader = OriginReader(
            origin,
            position,
            story.new_token,
            inbox="_INBOX.m",
            identity=fed.identity(origin.index_name),
        )

    async def step(self, now_ms: int, *, is_calm: bool) -> None:
        self._do(self.reader.tick(now_ms), is_calm)
        say = partial(self._say, is_calm=is_calm)
        self._served.send(lambda subject, reply, block: say(subject, reply, block, b""))
        for _ in range(self._rng.randint(1, 3)):
            if not self._way:
                break
            subject, reply, block, payload = self._way.popleft()
            is_answer = b".answer." in subject
            listened = subject.rpartition(b".")[0] + b".*" if is_answer else subject
            if listened.decode() not in self._listening:
                continue
            if is_answer:
                self._do(self.reader.answered(subject, payload, block, now_ms), is_calm)
            else:
                self._do(self.reader.heard(b"o.x", reply, block, payload, now_ms), is_calm)
        taken, self._taken = self._taken, []
        if taken:
            await self._fed.source(self._origin, taken)

    def _say(
        self, subject: bytes, reply: bytes, block: bytes, payload: bytes, *, is_calm: bool
    ) -> None:
        chance = 1.0 if is_calm else self._rng.random()
        if chance < 0.05:
            return
        self._way.extend([(subject, reply, block, payload)] * (2 if chance < 0.1 else 1))
        if chance < 0.15 and len(self._way) > 1:
            self._way[-1], self._way[-2] = self._way[-2], self._way[-1]

    def _do(self, step: ReaderStep, is_calm: bool) -> None:
        if step.closes:
            self._listening.clear()
        if step.opens:
            self._listening.add(self.reader.deliver_subject)
        if step.asks:
            self._listening.add(self.reader.answer_subjects)
        for it in step.sends:
            payload, block = self._served.answer(it.payload, it.block)
            self._say(it.reply, b"", block, payload, is_calm=is_calm)
        for taken in step.takes:
            assert not isinstance(taken, FlowControl)
            self._taken.append(taken)


class Story:
    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.world = World(folder)
        self.origins = {it.name: Origin(self.rng, it.name) for it in ORIGINS}
        self.stored: dict[str, list[Stored]] = {it.name: [] for it in ORIGINS}
        self.story: list[str] = []
        self._tokens = self._now_ms = self._seen_end = 0
        self._kind = self.rng.choice(("limits", "workqueue"))
        self._registry: ReplicaManager | None = None
        self._running: asyncio.Task[None] | None = None
        self._feeds: list[Feed] = []

    def new_token(self) -> str:
        self._tokens += 1
        return f"t{self._tokens}"

    @property
    def _partition(self) -> Partition:
        assert self._registry is not None
        return self._registry.partition(tp("s"))

    async def run(self) -> None:
        await self._start()
        limits = {"retention_ms": DAY_MS, "retention_bytes": 10_000, "segment_bytes": 4_096}
        await self.world.create("s", sources=SOURCES, retention=self._kind, **limits)
        try:
            await self._lead()
            for _ in range(STEPS):
                await self._act()
            for _ in range(200):
                self._now_ms += TICK_MS
                await self._step(is_calm=True)
                if self._has_all():
                    break
            self._judge_end()
        finally:
            await self._end()

    def _has_all(self) -> bool:
        return all(self._missing(name) == [] for name in self.origins)

    def _missing(self, name: str) -> list[int]:
        origin = self.origins[name]
        found = {it.sequence for it in self.stored[name] if it.identity == origin.identity}
        return [it for it in origin.sequences if it not in found]

    def _judge_end(self) -> None:
        for name in self.origins:
            assert self._missing(name) == [], name

    async def _act(self) -> None:
        rng, partition = self.rng, self._partition
        action = rng.choice(
            ("publish",) * 4 + ("feed",) * 12 + ("own",) * 4 + ("places", "remove", "again", "kill")
            + ("age", "size", "purge", "empty")
        )  # fmt: skip
        self.story.append(action)
        match action:
            case "publish":
                rng.choice(list(self.origins.values())).publish(rng.randint(1, 5))
            case "own":
                await publish(partition, *([bytes(300)] * rng.randint(1, 5)))
            case "places":
                for fed in self._feds:
                    fed.keep_places()
            case "remove":
                rng.choice(list(self.origins.values())).remove_some()
            case "again":
                if rng.random() < 0.3:
                    rng.choice(list(self.origins.values())).make_again()
            case "kill":
                await self._see()
                await self._kill()
                await self._start()
                await self._lead()
            case "age" | "size":
                await self._see()
                retain(partition, wall_ms() + (2 * DAY_MS if action == "age" else 0))
            case "purge":
                await self._see()
                await purge(partition)
            case "empty":
                await self._see()
                gone = range(partition.log_start_offset, partition.high_watermark)
                if self._kind == "workqueue" and gone:
                    partition.erasing.foresee(OffsetSet(gone), later=True)
                    await free_front(partition)
                    if rng.random() < 0.5:
                        await partition.erasing.settle()
            case _:
                await self._step(is_calm=False)
        await asyncio.sleep(0)

    async def _step(self, *, is_calm: bool) -> None:
        self._now_ms += self.rng.choice((1, 50, TICK_MS, SILENCE_MS if not is_calm else 1))
        for feed in self._feeds:
            for _ in range(4):
                await feed.step(self._now_ms, is_calm=is_calm)
        for fed in self._feds:
            await fed.committed()
        await self._see()

    @property
    def _feds(self) -> list[FedPartition]:
        return [it for it in [self._partition.places] if isinstance(it, FedPartition)]

    async def _start(self) -> None:
        self._registry = await self.world.started()
        self._running = asyncio.create_task(self._registry.run())

    async def _lead(self) -> None:
        """As ``MirrorService``."""
        partition = self._partition
        fed = FedPartition(partition, partition.leader_epoch, partition.config)
        names = [it.index_name for it in ORIGINS]
        positions = await fed.source_positions(names)
        partition.places = fed
        self._feeds = [Feed(self, it, fed, positions.get(it.index_name, 0)) for it in ORIGINS]
        self._now_ms += PAUSE_MS_MAX

    async def _kill(self) -> None:
        assert self._running is not None
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    async def _end(self) -> None:
        assert self._registry is not None
        await self._registry.close()
        await self._kill()

    async def _see(self) -> None:
        """All that is committed, before something removes it."""
        partition = self._partition
        at = max(self._seen_end, partition.log_start_offset)
        while at < partition.high_watermark:
            with await partition.read(at, 1 << 20) as part:
                data = await asyncio.to_thread(part.read)
            for header, batch in batches(data):
                for record in () if header.is_control else iter_records(batch):
                    if record.offset >= at:
                        self._judge(dict(record.headers).get("Nats-Stream-Source"))
                at = max(at, header.next_offset)
        self._seen_end = at

    def _judge(self, header: bytes | None) -> None:
        place = source_place(header or b"")
        if place is None:
            return
        name = place.index_name.split(":")[0]
        stored, it = self.stored[name], Stored(place.identity, place.sequence)
        assert it not in stored, f"{it} is there twice"
        assert all(at.identity != it.identity or at.sequence < it.sequence for at in stored), (
            f"{it} is not in order"
        )
        if stored and stored[-1].identity != it.identity:
            assert int(it.identity[len(name) :]) > int(stored[-1].identity[len(name) :])
        before = max((at.sequence for at in stored if at.identity == it.identity), default=0)
        gap = {Stored(it.identity, at) for at in range(before + 1, it.sequence)}
        missed = gap - self.origins[name].removed
        assert not missed, f"{sorted(missed)} are left out before {it}"
        stored.append(it)


def seeds() -> list[int]:
    given = os.environ.get("SIMULATION_SEEDS", "")
    if ":" in given:
        first, last = given.split(":")
        return [*range(int(first), int(last))]
    return [*SEEDS]


@pytest.mark.parametrize("seed", seeds())
async def test_each_message_of_an_origin_once(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fed_partition, "PLACES_EVERY", 40)
    story = Story(seed, tmp_path)
    try:
        async with asyncio.timeout(60):
            await story.run()
    except (AssertionError, StreamlogError, TimeoutError):
        print(*story.story, sep=", ")
        raise
