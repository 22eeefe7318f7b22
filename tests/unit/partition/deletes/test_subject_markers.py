"""One marker for each time that a subject ends, whatever fails in between."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlog.errors import StorageFull
from streamlog.partition.deletes import message_ttl
from streamlog.partition.deletes.message_deletes import MessageDeletes
from streamlog.partition.deletes.message_limits_task import MessageLimitsTask
from streamlog.partition.partition import Partition
from streamlog.partition.replica_manager import ReplicaManager
from streamlog.record.batch import PUBLISHED, batches
from streamlog.record.codec import RecordRun, iter_records
from streamlog.record.erasure import erased_by
from streamlog.record.offset_set import OffsetSet
from tests.local_node import until
from tests.partition_world import Told, World, tp

START_MS = 1_700_000_000_000


class Clock:
    """Of what is appended, and of what looks at it."""

    def __init__(self) -> None:
        self.now_ms = START_MS


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    for module in ("partition", "deletes.message_deletes"):
        monkeypatch.setattr(f"streamlog.partition.{module}.wall_ms", lambda: clock.now_ms)
    yield clock


class Settled:
    is_settled = True
    gathers = False


async def put(partition: Partition, subject: str, ttl: str = "", *more: tuple[bytes, bytes]) -> int:
    run, told = RecordRun(attributes=PUBLISHED), Told()
    headers = [(b"subject", subject.encode()), *more]
    if ttl:
        headers.append((b"Nats-TTL", ttl.encode()))
    run.append(None, b"v", headers)
    partition.append(run, told)
    return await told.answer


async def look(registry: ReplicaManager, clock: Clock) -> None:
    partition = registry.partition(tp("s"))
    partition.expiry.admission = partition.expiry.admission or Settled()
    task = MessageLimitsTask(now_ms=lambda: clock.now_ms)
    task.heard(partition)
    await task.look()
    await until(lambda: partition.high_watermark == partition.log_end_offset)
    await until(lambda: not partition.erasing._said)


async def story(partition: Partition) -> list[tuple[str, bool, int, OffsetSet]]:
    """What the log says: subject, whether it is a marker, offset; and of an erasure what it erases."""
    found = list[tuple[str, bool, int, OffsetSet]]()
    offset = partition.log_start_offset
    while offset < partition.log_end_offset:
        with await partition.read_appended(offset, 1 << 20) as part:
            data = part.read()
        for header, batch in batches(data):
            offset = header.next_offset
            if header.is_control:
                found.append(
                    ("", False, header.base_offset, erased_by(batch, header) or OffsetSet())
                )
                continue
            for it in iter_records(batch):
                names = dict(it.headers)
                subject = (names.get("subject") or b"").decode()
                marks = header.is_published and "Nats-Marker-Reason" in names
                found.append((subject, marks, it.offset, OffsetSet()))
    return found


def there(partition: Partition) -> list[int]:
    start, end = partition.log_start_offset, partition.high_watermark
    return [offset for offset in range(start, end) if offset not in partition.erased]


async def check(partition: Partition) -> dict[str, int]:
    """How many markers each subject has had: none twice in a row, none while an older message of it stays behind."""
    told = await story(partition)
    erased = OffsetSet()
    for _, _, _, gone in told:
        erased.update(gone)
    markers: dict[str, int] = {}
    last: dict[str, bool] = {}
    before: dict[str, list[int]] = {}
    for subject, marks, offset, _ in told:
        if not subject:
            continue
        if marks:
            assert last.get(subject) is False, f"{subject}: a second marker at {offset}"
            left = [it for it in before[subject] if it not in erased]
            assert not left, f"{subject}: the marker at {offset} has {left} before it"
            markers[subject] = markers.get(subject, 0) + 1
        last[subject] = marks
        before.setdefault(subject, []).append(offset)
    for subject, offsets in before.items():
        if not [it for it in offsets if it not in erased]:
            assert last[subject], f"{subject} has ended without a marker"
    return markers


@pytest.mark.parametrize("max_age", [False, True])
@pytest.mark.parametrize("per_subject", [-1, 1, 2])
@pytest.mark.parametrize("seed", range(6))
async def test_once_for_each_end(
    tmp_path: Path,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    per_subject: int,
    max_age: bool,
) -> None:
    """Restarts, and erasures that fail right behind their markers."""
    chosen, world = random.Random(f"{seed} {per_subject} {max_age}"), World(tmp_path)
    monkeypatch.setattr(message_ttl, "GONE_AT_ONCE", chosen.choice([1, 2, 400]))
    fails = chosen.choice([0.0, 0.3])
    append = MessageDeletes.append

    def failing(self: MessageDeletes, erased: OffsetSet, ack: object) -> None:
        if chosen.random() < fails:
            raise StorageFull("as asked for")
        append(self, erased, ack)  # type: ignore[arg-type]

    monkeypatch.setattr(MessageDeletes, "append", failing)
    settings = {"retention_ms": 7_000, "duplicate_window_ms": 1_000} if max_age else {}
    for part in range(3):
        async with world.node() as registry:
            if not part:
                await world.create(
                    "s",
                    subject_delete_marker_ttl_ms=5_000,
                    max_messages_per_subject=per_subject,
                    **settings,
                )
            partition = registry.partition(tp("s"))
            for _ in range(25):
                clock.now_ms += chosen.choice([0, 0, 100, 900, 2_500])
                kind = chosen.random()
                subject = chosen.choice("abcd")
                if kind < 0.5:
                    ttl = (
                        "" if max_age and chosen.random() < 0.5 else chosen.choice(["5", "6", "11"])
                    )
                    await put(partition, subject, ttl)
                else:
                    await look(registry, clock)
            if part == 2:
                fails = 0.0
                clock.now_ms += 60_000
                for _ in range(9):
                    await look(registry, clock)
                    clock.now_ms += 1_000
                assert there(partition) == []
                assert len(await check(partition)) == 4


async def test_nothing_goes_before_a_former_leader_is_made_up_for(
    tmp_path: Path, clock: Clock
) -> None:
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create("s", subject_delete_marker_ttl_ms=1_000)
        partition = registry.partition(tp("s"))
        await put(partition, "a", "1")
        clock.now_ms += 2_000

        class Unsettled:
            is_settled = False
            gathers = False

        partition.expiry.admission = Unsettled()
        await look(registry, clock)
        assert there(partition) == [0]
        partition.expiry.admission = Settled()
        await look(registry, clock)
        assert there(partition) == [1]
        assert await check(partition) == {"a": 1}


async def test_what_is_trimmed_is_erased_before_a_marker_takes_its_place(
    tmp_path: Path, clock: Clock
) -> None:
    """Else the next leader could find it alone, and mark the subject's end once more."""
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create("s", subject_delete_marker_ttl_ms=1_000, max_messages_per_subject=1)
        partition = registry.partition(tp("s"))
        await put(partition, "a")
        await put(partition, "a", "1")
        clock.now_ms += 1_500
        partition.surplus.find()
        assert there(partition) == [1]
        await look(registry, clock)
        told = await story(partition)
        assert [(it[1], list(it[3])) for it in told[2:]] == [(False, [0]), (True, []), (False, [1])]


async def test_a_newer_message_that_is_not_committed_counts(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create("s", subject_delete_marker_ttl_ms=1_000)
        partition = registry.partition(tp("s"))
        await put(partition, "a", "1")
        await look(registry, clock)
        clock.now_ms += 1_500
        run = RecordRun(attributes=PUBLISHED)
        run.append(None, b"v", [(b"subject", b"a")])
        partition.append(run, Told())
        assert partition.high_watermark == 1
        partition.expiry.take_due(clock.now_ms)
        await until(lambda: partition.high_watermark == partition.log_end_offset)
        assert there(partition) == [1]
        assert await check(partition) == {}


async def test_messages_go_one_by_one_by_their_age(tmp_path: Path, clock: Clock) -> None:
    """Not with their segments; what a Kafka producer wrote goes as well, and no later than others."""
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create(
            "s", subject_delete_marker_ttl_ms=60_000, retention_ms=10_000, duplicate_window_ms=1_000
        )
        partition = registry.partition(tp("s"))
        for number in range(4):
            await put(partition, "ab"[number % 2])
            await look(registry, clock)
            clock.now_ms += 1_000
        run, told = RecordRun(), Told()
        run.append(None, b"v")
        run.append(None, b"v", [(b"subject", b"a"), (b"Nats-Marker-Reason", b"MaxAge")])
        partition.state.append(run, clock.now_ms + 10**10, told)
        partition.keep()
        await told.answer
        await look(registry, clock)
        kept = []
        for _ in range(8):
            clock.now_ms += 1_000
            await look(registry, clock)
            kept.append([it for it in there(partition) if it < 6])
        assert kept == [
            [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5],
            [0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [2, 3, 4, 5], [3, 4, 5],
        ]  # fmt: skip
        clock.now_ms += 5_000
        await look(registry, clock)
        assert [it for it in there(partition) if it < 6] == []
        assert await check(partition) == {"a": 1, "b": 1}


async def test_a_sealed_stream_keeps_what_it_has(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create("s", subject_delete_marker_ttl_ms=1_000)
        partition = registry.partition(tp("s"))
        await put(partition, "a", "1")
        await world.update("s", sealed=True)
        clock.now_ms += 10_000
        await look(registry, clock)
        assert there(partition) == [0]


async def test_another_time_for_markers_is_read_again(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path)
    async with world.node() as registry:
        await world.create("s", subject_delete_marker_ttl_ms=60_000)
        partition = registry.partition(tp("s"))
        await put(partition, "a", "1")
        await look(registry, clock)
        clock.now_ms += 5_000
        await look(registry, clock)
        assert there(partition) == [0], "it lasts as long as a marker"
        await world.update("s", subject_delete_marker_ttl_ms=2_000)
        await look(registry, clock)
        assert there(partition) == [1]
        await world.update("s", subject_delete_marker_ttl_ms=-1)
        clock.now_ms += 5_000
        await look(registry, clock)
        assert there(partition) == []
