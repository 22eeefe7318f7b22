"""A partition in memory that lookups read."""

from collections.abc import Sequence

from streamlog.errors import OffsetOutOfRange
from streamlog.model import TopicPartition
from streamlog.partition.subjects.index_build import note_batches, nothing_erased
from streamlog.record.codec import RecordRun
from streamlog.record.compiled.subjects import SubjectIndex
from streamlog.record.offset_set import OffsetSet
from tests.led_partition import FakeSlice

TIME_MS = 1_700_000_000_000


class FakeSubjects:
    """Of all batches, those that are not committed, too."""

    def __init__(self, batches: Sequence[bytes]) -> None:
        self.index = SubjectIndex(bytes(16), bytes_max=1 << 30)
        note_batches(self.index, b"".join(batches), nothing_erased)

    async def know(self) -> SubjectIndex:
        return self.index


class NoSurplus:
    """Of a stream that keeps all messages of each subject."""

    async def settle(self) -> None:
        """Nothing is too much."""


class FakePartition:
    """Batches in memory; reads whole ones, as a log does."""

    def __init__(self, batches: Sequence[Sequence[str]], compression: int = 0) -> None:
        self.tp = TopicPartition("fake", 0)
        self.log_start_offset = 0
        self.erased = OffsetSet()
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
        self.surplus = NoSurplus()
        self.subjects = FakeSubjects([data for _, _, data in self._batches])
        self.reads = 0

    @property
    def stable_offset(self) -> int:
        return self.high_watermark

    async def offset_for_timestamp(
        self, timestamp_ms: int, *, stable: bool = False
    ) -> tuple[int, int] | None:
        found = (base for base, _, _ in self._batches if TIME_MS + base >= timestamp_ms)
        return next(((base, TIME_MS + base) for base in found), None)

    def segment_of(self, offset: int) -> None:
        """There are no files."""

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
