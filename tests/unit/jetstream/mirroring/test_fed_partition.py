"""What a partition takes from other streams, and how far it has come with each, over real files."""

import asyncio
from pathlib import Path

import pytest

from streamlog.clock import wall_ms
from streamlog.control.messages.purge import purge
from streamlog.errors import NotLeader, StreamFull
from streamlog.jetstream.mirroring import fed_partition
from streamlog.jetstream.mirroring.fed_partition import FedPartition
from streamlog.jetstream.mirroring.origin_batches import SourcePlace, first_gap, mirrored_batches
from streamlog.jetstream.mirroring.origin_reader import OriginMessage
from streamlog.metadata.stream.stream_origin import StreamOrigin
from streamlog.partition.maintenance.log_start import free_front
from streamlog.partition.maintenance.retention_task import retain
from streamlog.partition.partition import Partition
from streamlog.record.batch import PUBLISHED, batches
from streamlog.record.codec import RecordRun, iter_records
from streamlog.record.offset_set import OffsetSet
from tests.partition_world import Told, World, publish, tp, values_of

ONE, TWO = StreamOrigin("one"), StreamOrigin("two", filter_subject="t.>")
NAMES = (ONE.index_name, TWO.index_name)
MIRROR = '{"name":"one"}'
SOURCES = '[{"name":"one"},{"name":"two","filter_subject":"t.>"}]'


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def message(sequence: int, subject: str = "o.x") -> OriginMessage:
    return OriginMessage(subject, sequence, 1_000 + sequence, b"", b"%d" % sequence, subject)


def fed(partition: Partition) -> FedPartition:
    return FedPartition(partition, partition.leader_epoch, partition.config)


async def offsets_of(partition: Partition) -> dict[int, bytes]:
    found, at = dict[int, bytes](), partition.log_start_offset
    while at < partition.high_watermark:
        with await partition.read(at, 1 << 20) as part:
            data = part.read()
        for header, batch in batches(data):
            at = header.next_offset
            if not header.is_control:
                found |= {it.offset: it.value or b"" for it in iter_records(batch)}
    return found


async def test_mirror_keeps_sequences_and_begins_with_the_first_message(world: World) -> None:
    async with world.node() as registry:
        await world.create("m", mirror=MIRROR)
        partition = registry.partition(tp("m"))
        mirror = fed(partition)
        await mirror.mirror([message(101), message(102), message(105)])
        await mirror.committed()
        await mirror.begin_at_first()
        assert partition.log_start_offset == 100
        assert await offsets_of(partition) == {100: b"101", 101: b"102", 104: b"105"}
        assert mirror.mirrored == 105
        assert len(partition.erased) == 2
        await mirror.begin_at_first()
        assert partition.log_start_offset == 100


async def test_mirror_takes_nothing_twice_and_goes_on_after_a_restart(world: World) -> None:
    async with world.node() as registry:
        await world.create("m", mirror=MIRROR)
        mirror = fed(registry.partition(tp("m")))
        await mirror.mirror([message(1), message(2)])
        await mirror.mirror([message(1), message(2), message(3)])
        await mirror.mirror([message(2)])
        await mirror.committed()
    async with world.node() as registry:
        partition = registry.partition(tp("m"))
        mirror = fed(partition)
        assert mirror.mirrored == 3
        await mirror.mirror([message(3), message(4)])
        await mirror.committed()
        assert await offsets_of(partition) == {it: b"%d" % (it + 1) for it in range(4)}


@pytest.mark.parametrize("last", [9, 60 * 65_536])
async def test_gap_of_which_a_leader_has_the_beginning_is_named(world: World, last: int) -> None:
    """By the one after it, however many of the gap's batches that has."""
    appended = [*mirrored_batches([message(1)], 0, leader_epoch=0)]
    appended += mirrored_batches([message(last)], 1, leader_epoch=0)
    assert len(appended) == (4 if last == 9 else 5)
    async with world.node() as registry:
        for count in range(1, len(appended) + 1):
            await world.create(f"m{count}", mirror=MIRROR)
            partition = registry.partition(tp(f"m{count}"))
            partition.restore(memoryview(b"".join(appended[:count])), Told())
            mirror = fed(partition)
            await mirror.find_unnamed()
            await mirror.mirror([message(last)])
            await mirror.all_committed()
            assert partition.log_end_offset == last
            assert partition.erased == OffsetSet.between_ends(1, last - 1), count
            await mirror.find_unnamed()
            await mirror.mirror([message(last + 2)])
            await mirror.committed()


async def test_what_a_log_begins_with_is_not_named(world: World) -> None:
    async with world.node() as registry:
        await world.create("m", mirror=MIRROR)
        partition = registry.partition(tp("m"))
        gap = first_gap(2**40, leader_epoch=0, timestamp_ms=1)
        partition.restore(memoryview(gap), Told())
        mirror = fed(partition)
        await mirror.find_unnamed()
        await mirror.mirror([message(2**40 + 1), message(2**40 + 3)])
        await mirror.committed()
        assert list(partition.erased) == [2**40 + 1]


async def test_late_former_leader_appends_nothing(world: World) -> None:
    async with world.node() as registry:
        await world.create("m", mirror=MIRROR)
        await world.create("s", sources=SOURCES)
        for name in ("m", "s"):
            partition = registry.partition(tp(name))
            late = FedPartition(partition, partition.leader_epoch - 1, partition.config)
            with pytest.raises(NotLeader):
                await (late.mirror([message(1)]) if name == "m" else late.source(ONE, [message(1)]))
            assert partition.log_end_offset == 0


async def test_promoted_stream_is_mirrored_no_more(world: World) -> None:
    async with world.node() as registry:
        await world.create("m", mirror=MIRROR)
        partition = registry.partition(tp("m"))
        mirror = fed(partition)
        partition.config = partition.config.changed(mirror="")
        with pytest.raises(NotLeader):
            await mirror.mirror([message(1)])


async def test_places_of_sources_are_in_the_log(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fed_partition, "SCAN_OFFSETS", 2)
    async with world.node() as registry:
        await world.create("s", sources=SOURCES)
        partition = registry.partition(tp("s"))
        sourced = fed(partition)
        assert await sourced.source_positions(NAMES) == {}
        await sourced.source(TWO, [message(7, "t.a"), message(9, "t.b")])
        assert await sourced.source_positions(NAMES) == {NAMES[1]: 9}
        for sequence in range(1, 30):
            await sourced.source(ONE, [message(sequence)])
            await publish(partition, b"its own")
        await sourced.committed()
        assert await sourced.source_positions(NAMES) == {NAMES[0]: 29, NAMES[1]: 9}
        assert len(await offsets_of(partition)) == 2 + 58
        assert len(partition.erased) == 1, "the record of places"
    async with world.node() as registry:
        positions = await fed(registry.partition(tp("s"))).source_positions(NAMES)
        assert positions == {NAMES[0]: 29, NAMES[1]: 9}


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
async def test_places_are_found_in_compressed_batches(world: World, compression: str) -> None:
    async with world.node() as registry:
        await world.create("s", sources=SOURCES, compression=compression)
        sourced = fed(registry.partition(tp("s")))
        await sourced.source(ONE, [message(it) for it in range(1, 500)])
        assert await sourced.source_positions(NAMES) == {NAMES[0]: 499}


async def test_full_stream_that_discards_new_ones_takes_no_more(world: World) -> None:
    async with world.node() as registry:
        await world.create("s", sources=SOURCES, discard="new", retention_messages=2)
        partition = registry.partition(tp("s"))
        sourced = fed(partition)
        await sourced.source(ONE, [message(1), message(2)])
        await sourced.committed()
        with pytest.raises(StreamFull):
            await sourced.source(ONE, [message(3)])
        assert await sourced.source_positions(NAMES) == {NAMES[0]: 2}


async def test_subjects_are_changed_as_the_stream_says(world: World) -> None:
    async with world.node() as registry:
        await world.create("s", sources=SOURCES, subject_transform="o.* -> p.{{wildcard(1)}}")
        partition = registry.partition(tp("s"))
        sourced = fed(partition)
        await sourced.source(ONE, [message(1, "o.a"), message(2, "q.b")])
        await sourced.committed()
        with await partition.read(0, 1 << 20) as part:
            records = list(iter_records(part.read()))
        assert [dict(it.headers)["subject"] for it in records] == [b"p.a", b"q.b"]
        said = [dict(it.headers)["Nats-Stream-Source"] for it in records]
        assert said == [b"one 1 > > o.a", b"one 2 > > q.b"]


async def test_places_outlive_a_purge_and_retention(world: World) -> None:
    async with world.node() as registry:
        await world.create("s", sources=SOURCES, segment_bytes=4096)
        partition = registry.partition(tp("s"))
        sourced = fed(partition)
        partition.places = sourced
        assert await sourced.source_positions(NAMES) == {}
        await sourced.source(ONE, [message(3)])
        await sourced.source(TWO, [message(it, "t.a") for it in range(1, 9)])
        for _ in range(100):
            await publish(partition, bytes(500))
            sourced.keep_places()
        await sourced.committed()
        segment = partition.segment_of(partition.log_end_offset - 1)
        assert segment is not None
        assert segment.base_offset > 50
        await partition.purge(segment.base_offset)  # as retention does
        assert await fed(partition).source_positions(NAMES) == {NAMES[0]: 3, NAMES[1]: 8}
        for _ in range(2):
            await sourced.source(TWO, [message(9, "t.a")])
            await sourced.committed()
            await purge(partition)
            assert await values_of(partition) == []
            assert await fed(partition).source_positions(NAMES) == {NAMES[0]: 3, NAMES[1]: 9}
    async with world.node() as registry:
        partition = registry.partition(tp("s"))
        assert await fed(partition).source_positions(NAMES) == {NAMES[0]: 3, NAMES[1]: 9}


async def begins(partition: Partition, start: int) -> None:
    async with asyncio.timeout(10):
        while partition.log_start_offset < start:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_places_outlive_the_age_of_all_messages(world: World) -> None:
    """Else a stream at rest would take all from its sources again, from the next leader on."""
    async with world.node() as registry:
        await world.create("s", sources=SOURCES, retention_ms=1_000)
        partition = registry.partition(tp("s"))
        retain(partition, wall_ms() + 5_000)
        sourced = fed(partition)
        assert await sourced.source_positions(NAMES) == {}
        retain(partition, wall_ms() + 5_000)
        partition.places = sourced
        await sourced.source(ONE, [message(3), message(4)])
        await sourced.committed()
        await publish(partition, b"its own")
        end = partition.log_end_offset
        for number in range(4):
            retain(partition, wall_ms() + 5_000 * (number + 1))
            sourced.keep_places()
            await sourced.committed()
            await asyncio.sleep(0.05)
        await begins(partition, end)
        assert await values_of(partition) == []
        assert partition.log_end_offset == end + 1, "they are appended once more, and not for ever"
        assert await fed(partition).source_positions(NAMES) == {NAMES[0]: 4}
    async with world.node() as registry:
        partition = registry.partition(tp("s"))
        assert await fed(partition).source_positions(NAMES) == {NAMES[0]: 4}


async def test_retention_waits_for_the_places(world: World) -> None:
    """Segments may begin, and go, before anybody has looked whether they have the places."""
    async with world.node() as registry:
        await world.create("s", sources=SOURCES, segment_bytes=4096, retention_bytes=8192)
        partition = registry.partition(tp("s"))
        sourced = fed(partition)
        assert await sourced.source_positions(NAMES) == {}
        partition.places = sourced
        await sourced.source(ONE, [message(3)])
        await sourced.committed()
        for _ in range(100):
            await publish(partition, bytes(500))
        retain(partition, wall_ms())
        await asyncio.sleep(0.05)
        assert await fed(partition).source_positions(NAMES) == {NAMES[0]: 3}
        sourced.keep_places()
        await sourced.committed()
        retain(partition, wall_ms())
        await begins(partition, 70)
        assert await fed(partition).source_positions(NAMES) == {NAMES[0]: 3}
        partition.places = None
        before = partition.log_start_offset
        for _ in range(100):
            await publish(partition, bytes(500))
        retain(partition, wall_ms())
        await asyncio.sleep(0.05)
        assert partition.log_start_offset == before, "a leader that does not know the places"


async def test_places_outlive_what_consumers_empty(world: World) -> None:
    async with world.node() as registry:
        await world.create("s", sources=SOURCES, retention="workqueue")
        partition = registry.partition(tp("s"))
        sourced = fed(partition)
        assert await sourced.source_positions(NAMES) == {}
        partition.places = sourced
        await sourced.source(ONE, [message(3), message(4)])
        await sourced.committed()
        partition.erasing.foresee(OffsetSet([*range(partition.log_end_offset)]), later=True)
        await free_front(partition)
        await partition.purge(partition.log_end_offset)
        assert await values_of(partition) == []
        assert await fed(partition).source_positions(NAMES) == {NAMES[0]: 4}


class Ending:
    """Places of a feed that ends while they are said again."""

    kept_offset = None

    def __init__(self, partition: Partition, then: FedPartition | None) -> None:
        self._partition = partition
        self._then = then

    def start_for(self, start: int) -> int:
        return 0

    async def renew(self) -> None:
        self._partition.places = self._then


@pytest.mark.parametrize("has_begun", [False, True])
async def test_purge_is_refused_where_the_feed_ends_meanwhile(
    world: World, has_begun: bool
) -> None:
    """The next one has not found the places yet."""
    async with world.node() as registry:
        await world.create("s", sources=SOURCES)
        partition = registry.partition(tp("s"))
        sourced = fed(partition)
        await sourced.source(ONE, [message(3)])
        await sourced.committed()
        partition.places = Ending(partition, fed(partition) if has_begun else None)
        with pytest.raises(NotLeader, match="not known yet"):
            await purge(partition)
        assert partition.log_start_offset == 0


async def test_places_of_sources_that_are_configured_no_more_are_kept(world: World) -> None:
    async with world.node() as registry:
        await world.create("s", sources=SOURCES)
        partition = registry.partition(tp("s"))
        sourced = fed(partition)
        await sourced.source(ONE, [message(3)])
        await sourced.source(TWO, [message(4, "t.a")])
        await sourced.committed()
        later = fed(partition)
        assert await later.source_positions(NAMES[1:]) == {NAMES[1]: 4}
        partition.places = later
        await purge(partition)
        assert await fed(partition).source_positions(NAMES) == {NAMES[0]: 3, NAMES[1]: 4}


async def test_places_are_near_the_end_of_the_log(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fed_partition, "PLACES_EVERY", 10)
    monkeypatch.setattr(fed_partition, "SCAN_OFFSETS", 20)
    async with world.node() as registry:
        await world.create("s", sources=SOURCES)
        partition = registry.partition(tp("s"))
        sourced = fed(partition)
        for number in range(100):
            await publish(partition, b"its own")
            sourced.keep_places()
            if number == 5:
                await sourced.source(ONE, [message(3)])
        assert len(partition.erased) >= 9
        read: list[tuple[int, int]] = []
        later = fed(partition)
        positions_in = later._positions_in

        async def noted(start: int, end: int) -> dict[str, SourcePlace]:
            read.append((start, end))
            return await positions_in(start, end)

        monkeypatch.setattr(later, "_positions_in", noted)
        assert await later.source_positions(NAMES) == {NAMES[0]: 3}
        assert len(read) == 1


async def test_the_places_name_the_stream_that_they_are_of(world: World) -> None:
    async with world.node() as registry:
        await world.create("s", sources=SOURCES)
        partition = registry.partition(tp("s"))
        sourced = fed(partition)
        await sourced.source_positions(NAMES)
        partition.places = sourced
        await sourced.source(ONE, [message(9)._replace(identity="old")])
        await sourced.source(ONE, [message(2)._replace(identity="new")])
        await sourced.source(TWO, [message(3, "t.a")])
        await sourced.committed()
        later = fed(partition)
        assert await later.source_positions(NAMES) == {NAMES[0]: 2, NAMES[1]: 3}
        assert [later.identity(it) for it in NAMES] == ["new", ""]
        await purge(partition)
    async with world.node() as registry:
        later = fed(registry.partition(tp("s")))
        assert await later.source_positions(NAMES) == {NAMES[0]: 2, NAMES[1]: 3}
        assert [later.identity(it) for it in NAMES] == ["new", ""]


async def test_other_producers_do_not_move_the_places(world: World) -> None:
    """A Kafka producer may give its records any header; of what a NATS client repeats the first counts."""
    async with world.node() as registry:
        await world.create("s", sources=SOURCES)
        partition = registry.partition(tp("s"))
        sourced = fed(partition)
        await sourced.source(ONE, [message(3)])
        await sourced.committed()
        forged = (b"Nats-Stream-Source", b"one 999 > > x")
        for attributes, headers in (
            (0, [forged]),
            (PUBLISHED, [(b"Nats-Stream-Source", b""), forged]),
        ):
            run, told = RecordRun(attributes=attributes), Told()
            run.append(None, b"", headers)
            partition.append(run, told)
            await told.answer
            assert await fed(partition).source_positions(NAMES) == {NAMES[0]: 3}
