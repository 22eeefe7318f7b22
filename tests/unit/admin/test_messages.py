from collections.abc import Sequence

import pytest

from streamlog.admin import messages
from streamlog.admin.errors import Refused
from streamlog.admin.messages import last_message, message_at, next_message, stored_message
from streamlog.errors import OffsetOutOfRange
from streamlog.record.codec import Record, RecordRun
from streamlog.record.compression import Compression

TIME_MS = 1_700_000_000_000


class FakeSlice:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self) -> bytes:
        return self._data

    def __enter__(self) -> "FakeSlice":
        return self

    def __exit__(self, *_: object) -> None:
        pass


class FakePartition:
    """Batches in memory; reads whole ones, as a log does."""

    def __init__(self, batches: Sequence[Sequence[str]], compression: int = 0) -> None:
        self.log_start_offset = 0
        self._batches: list[tuple[int, int, bytes]] = []
        end = 0
        for subjects in batches:
            run = RecordRun()
            for subject in subjects:
                run.append(None, b"of " + subject.encode(), [(b"subject", subject.encode())])
            data = run.seal(
                base_offset=end, leader_epoch=0, timestamp_ms=TIME_MS + end, compression=compression
            )
            self._batches.append((end, end + len(subjects), data))
            end += len(subjects)
        self.high_watermark = end
        self.reads = 0

    async def read(self, offset: int, max_bytes: int) -> FakeSlice:
        self.reads += 1
        if not self.log_start_offset <= offset <= self.high_watermark:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.high_watermark)
        wanted = [data for _, end, data in self._batches if end > offset]
        data = wanted[0]
        for more in wanted[1:]:
            if len(data) + len(more) > max_bytes:
                break
            data += more
        return FakeSlice(data)


@pytest.fixture(params=[Compression.NONE, Compression.ZSTD])
def partition(request: pytest.FixtureRequest) -> FakePartition:
    return FakePartition([["a.1", "b.1", "a.2"], ["b.2"], ["a.1", "c"]], request.param)


async def test_by_sequence(partition: FakePartition) -> None:
    found = await message_at(partition, 5)  # type: ignore[arg-type]
    assert (found.subject, found.sequence, found.data) == ("a.1", 5, b"of a.1")
    assert found.timestamp_ms == TIME_MS + 4
    for sequence in (0, 7, 10**12):
        with pytest.raises(Refused):
            await message_at(partition, sequence)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pattern", "sequence"), [("a.1", 5), ("b.*", 4), ("a.>", 5), ("a.2", 3), (">", 6), ("d", None)]
)
async def test_the_last(partition: FakePartition, pattern: str, sequence: int | None) -> None:
    if sequence is None:
        with pytest.raises(Refused, match="no message found"):
            await last_message(partition, pattern)  # type: ignore[arg-type]
    else:
        assert (await last_message(partition, pattern)).sequence == sequence  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pattern", "start", "sequence"),
    [("a.1", 0, 1), ("a.1", 2, 5), ("a.*", 2, 3), ("b.1", 3, None), ("c", 0, 6), ("a.1", 99, None)],
)
async def test_the_next(
    partition: FakePartition, pattern: str, start: int, sequence: int | None
) -> None:
    if sequence is None:
        with pytest.raises(Refused, match="no message found"):
            await next_message(partition, pattern, start)  # type: ignore[arg-type]
    else:
        found = await next_message(partition, pattern, start)  # type: ignore[arg-type]
        assert found.sequence == sequence


async def test_what_is_purged_is_not_found(partition: FakePartition) -> None:
    partition.log_start_offset = 2
    with pytest.raises(Refused):
        await message_at(partition, 2)  # type: ignore[arg-type]
    with pytest.raises(Refused):
        await last_message(partition, "b.1")  # type: ignore[arg-type]
    assert (await next_message(partition, "a.*", 0)).sequence == 3  # type: ignore[arg-type]


async def test_a_search_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "SCAN_BATCHES_MAX", 5)
    partition = FakePartition([["a"]] + [["b"]] * 20 + [["a"]])
    with pytest.raises(Refused, match="as far as a search"):
        await last_message(partition, "c")  # type: ignore[arg-type]
    assert partition.reads == 6
    with pytest.raises(Refused, match="as far as a search"):
        await next_message(partition, "c", 0)  # type: ignore[arg-type]


def test_a_record_as_a_message() -> None:
    headers = (("subject", b"s"), ("reply", b"r"), ("X", b"1"), ("X", b"2"), ("empty", None))
    found = stored_message(Record(6, TIME_MS, None, b"v", headers))
    assert found.header_block == b"NATS/1.0\r\nX: 1\r\nX: 2\r\nempty: \r\n\r\n"
    assert found.json() == {
        "subject": "s",
        "seq": 7,
        "time": "2023-11-14T22:13:20.000Z",
        "data": "dg==",
        "hdrs": "TkFUUy8xLjANClg6IDENClg6IDINCmVtcHR5OiANCg0K",
    }


def test_a_record_that_was_no_message() -> None:
    found = stored_message(Record(0, TIME_MS, b"k", None, ()))
    assert (found.subject, found.header_block, found.data) == ("", b"", b"")
    assert set(found.json()) == {"subject", "seq", "time"}
