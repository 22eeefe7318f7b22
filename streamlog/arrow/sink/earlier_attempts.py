"""What other attempts of a task have in the log, out of its batches. Pure."""

import hashlib
import marshal
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from streamlog.arrow.sink.partition_leaders import Batch
from streamlog.arrow.sink.rows import Content
from streamlog.record.batch import BatchHeader
from streamlog.record.codec import iter_records
from streamlog.replication.producer_state import following

DIGEST_BYTES: Final = 16
MARSHAL_FORMAT: Final = 2
"""It writes equal values the same, whatever else refers to them."""


@dataclass(frozen=True)
class EarlierAttempts:
    """The records that one producer has in a partition."""

    records: Counter[bytes]
    """By their digests."""
    timed: bool
    """The digests are of records with their times."""
    epoch: int
    next_sequence: int

    @classmethod
    def of(
        cls, batches: Iterable[Batch], producer_id: int, *, have_times: bool
    ) -> "EarlierAttempts | None":
        """``have_times``: the rows to write have. None: there is no batch of this producer."""
        last: BatchHeader | None = None
        contents: list[Content] = []
        timed = have_times
        for header, batch in batches:
            if header.producer_id == producer_id and not header.is_control:
                last = header
                contents += contents_of(batch)
                timed = timed and not header.is_log_append_time  # else the times are the leader's
        if last is None:
            return None
        next_sequence = following(last.base_sequence, last.last_offset_delta + 1)
        counted = Counter(digest(it, timed=timed) for it in contents)
        return cls(counted, timed, last.producer_epoch, next_sequence)


def are_in(contents: list[Content], batch: Batch, *, have_times: bool) -> bool:
    """Whether the batch is of these records."""
    header, data = batch
    timed = have_times and not header.is_log_append_time
    return [digest(it, timed=timed) for it in contents] == [
        digest(it, timed=timed) for it in contents_of(data)
    ]


def contents_of(batch: memoryview) -> Iterator[Content]:
    for record in iter_records(batch):
        headers = tuple((name.encode(), value) for name, value in record.headers)
        yield record.key, record.value, headers, record.timestamp_ms


def digest(content: Content, *, timed: bool) -> bytes:
    """Of a record; its time counts only if it is ``timed``."""
    whole = content if timed else (*content[:3], None)
    return hashlib.blake2b(marshal.dumps(whole, MARSHAL_FORMAT), digest_size=DIGEST_BYTES).digest()
