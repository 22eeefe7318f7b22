import pytest

from streamlog.errors import CorruptBatch, OffsetOutOfRange
from streamlog.ingest.admission.deduplicator import Deduplicator
from streamlog.ingest.dedup_recovery.window_scan import look_at_recent, rebuild_window, scan
from streamlog.model import TopicPartition
from streamlog.record.batch import PUBLISHED
from streamlog.record.codec import RecordRun
from streamlog.record.compression import Compression
from tests.nats_frames import COMPILED, PLAIN, SID, Twin, block, hmsg

TIME_MS = 1_700_000_000_000
TWINS = [pytest.param(PLAIN, id="plain"), pytest.param(COMPILED, id="compiled")]


class FakeSlice:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def read(self) -> bytes:
        return self._data

    def __enter__(self) -> "FakeSlice":
        return self

    def __exit__(self, *_: object) -> None:
        pass


class FakePartition:
    """One batch each second; each of three records, the last of them with an id."""

    def __init__(self, compression: int = 0, *, damaged_from: int = 10**9) -> None:
        self.tp = TopicPartition("orders", 0)
        self.log_start_offset, self.high_watermark, self.log_end_offset = 0, 24, 30
        self.damaged_from, self.damaged_to = damaged_from, 10**9
        self.files_start = self.moves_to = 0
        self._batches = []
        for i in range(10):
            run = RecordRun(attributes=PUBLISHED)
            run.append(None, b"Nats-Msg-Id: no header")
            run.append(None, b"", [(b"subject", b"orders"), (b"Nats-Msg-Id", b"")])
            run.append(None, b"", [(b"subject", b"orders"), (b"Nats-Msg-Id", b"id-%d" % i)])
            self._batches.append(
                run.seal(
                    base_offset=3 * i,
                    leader_epoch=0,
                    timestamp_ms=TIME_MS + 1000 * i,
                    compression=compression,
                )
            )

    @property
    def local_log_start_offset(self) -> int:
        """It is not tiered."""
        return self.log_start_offset

    async def offset_for_timestamp(
        self, timestamp_ms: int, *, from_files_start: bool = False
    ) -> tuple[int, int] | None:
        if from_files_start and self.damaged_from < self.log_start_offset:
            raise CorruptBatch("as asked for")
        first = self.files_start if from_files_start else self.log_start_offset
        at = max(first // 3, -(-(timestamp_ms - TIME_MS) // 1000))
        return (3 * at, TIME_MS + 1000 * at) if 3 * at < self.high_watermark else None

    async def read_appended(self, offset: int, max_bytes: int) -> FakeSlice:
        if self.moves_to:
            self.log_start_offset, self.moves_to = self.moves_to, 0
        if offset < self.log_start_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        return await self.read_files(offset, max_bytes, is_appended=True)

    async def read_files(
        self, offset: int, max_bytes: int, *, is_appended: bool = False
    ) -> FakeSlice:
        if self.damaged_from <= offset < self.damaged_to:
            raise CorruptBatch("as asked for")
        return FakeSlice(b"".join(self._batches[offset // 3 : offset // 3 + 4]))


def first_of(deduplicator: Deduplicator, message_id: bytes) -> int | None:
    block = b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % message_id
    now_ms = TIME_MS + 10_000
    return deduplicator.admit(block, b"", b"", 0, log_end_offset=30, now_ms=now_ms).duplicate_of


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
async def test_ids_of_the_window_are_known_again(compression: int) -> None:
    deduplicator = Deduplicator("orders", duplicate_window_ms=120_000)
    partition = FakePartition(compression)
    count = await rebuild_window(
        partition,  # type: ignore[arg-type]
        deduplicator,
        since_ms=TIME_MS + 5000,
    )
    assert count == 5
    assert [first_of(deduplicator, b"id-%d" % i) for i in (4, 5, 9)] == [None, 17, 29]


async def test_damage_is_told_and_does_not_keep_the_stream_shut(
    caplog: pytest.LogCaptureFixture,
) -> None:
    deduplicator = Deduplicator("orders", duplicate_window_ms=120_000)
    partition = FakePartition(damaged_from=12)
    count = await rebuild_window(
        partition,  # type: ignore[arg-type]
        deduplicator,
        since_ms=TIME_MS,
    )
    assert (count, first_of(deduplicator, b"id-3")) == (4, 11)
    assert "message ids from here on are not known" in caplog.text


async def test_the_last_messages_are_looked_at_though_retention_is_quicker() -> None:
    """Else what a former leader has not erased would stay."""
    partition = FakePartition()
    partition.moves_to = 20
    recent = await look_at_recent(partition)  # type: ignore[arg-type]
    assert [it.offset for scanned in recent for it in scanned.ids] == [20, 23, 26, 29]


async def test_ids_outlive_their_messages_as_long_as_files_have_them() -> None:
    """Also where these are damaged: nobody mends what is no message any more."""
    for damaged_from in (10**9, 12):
        deduplicator = Deduplicator("orders", duplicate_window_ms=120_000)
        partition = FakePartition(damaged_from=damaged_from)
        partition.log_start_offset, partition.damaged_to = 20, 15
        await rebuild_window(
            partition,  # type: ignore[arg-type]
            deduplicator,
            since_ms=TIME_MS + 3_000,
        )
        assert first_of(deduplicator, b"id-9") == 29
        assert first_of(deduplicator, b"id-4") == (14 if damaged_from > 20 else None)


async def test_what_is_not_committed_counts_also_where_nothing_committed_is_that_young() -> None:
    deduplicator = Deduplicator("orders", duplicate_window_ms=120_000)
    partition = FakePartition()
    count = await rebuild_window(
        partition,  # type: ignore[arg-type]
        deduplicator,
        since_ms=TIME_MS + 9000,
    )
    assert (count, first_of(deduplicator, b"id-9"), first_of(deduplicator, b"id-8")) == (
        1,
        29,
        None,
    )


def test_what_a_source_has_brought_asks_for_nothing() -> None:
    run = RecordRun(attributes=PUBLISHED)
    asked = [(b"subject", b"a"), (b"Nats-Msg-Id", b"one"), (b"Nats-Rollup", b"sub")]
    run.append(None, b"x", [*asked, (b"Nats-Stream-Source", b"o 1 > > a")])
    run.append(None, b"x", [(b"subject", b"a"), (b"Nats-Msg-Id", b"two"), (b"Nats-Rollup", b"all")])
    batch = run.seal(base_offset=7, leader_epoch=3, timestamp_ms=TIME_MS)
    found = scan(FakeSlice(batch))  # type: ignore[arg-type]
    assert [(it.message_id, it.offset) for it in found.ids] == [(b"two", 8)]
    assert found.rollups == ((8, None),)


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("twin", TWINS)
def test_the_ids_of_what_came_over_nats_are_found(twin: Twin, compression: Compression) -> None:
    """Whatever has gathered it: the batches of an inflow are marked, and stay so when sealed."""
    parser, inflow = twin.FrameParser(), twin.RecordCollector(message_bytes_max=1000)
    parser.bind(SID, inflow)
    for _ in range(2):  # a run that was sealed gathers the next read
        parser.feed(hmsg(block(b"Nats-Msg-Id: one"), b"x") + hmsg(block(b"Nats-Msg-Id: two")))
        batch = inflow.run.seal(
            base_offset=7, leader_epoch=3, timestamp_ms=TIME_MS, compression=compression
        )
        found = scan(FakeSlice(bytes(batch)))  # type: ignore[arg-type]
        assert [(it.message_id, it.offset) for it in found.ids] == [(b"one", 7), (b"two", 8)]
        assert (found.next_offset, found.epoch) == (9, 3)
