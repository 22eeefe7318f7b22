"""How far a table has got with its stream, as its snapshots say. Pure.

Each snapshot that a job commits says in its summary::

    streamlog.stream      orders
    streamlog.stream-id   0b3c…                       of this stream, not of one created again
    streamlog.offsets     {"0":42,"1":17}             ends, exclusive: what is before them is in the table
    streamlog.ranges      {"0":[20,42],"1":[5,17]}    what this snapshot has added
    streamlog.commit-id   5d1e…                       of this commit, in all of its attempts

Data and position become visible by the same commit, so neither is ahead of the other. A snapshot of another program
has no position: then that of its nearest ancestor which has one holds. So a table that is set back to an earlier
snapshot is continued from there.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from streamlog.errors import StreamlogError

STREAM: Final = "streamlog.stream"
STREAM_ID: Final = "streamlog.stream-id"
OFFSETS: Final = "streamlog.offsets"
RANGES: Final = "streamlog.ranges"
COMMIT_ID: Final = "streamlog.commit-id"


class PositionError(StreamlogError):
    """The position in a table is missing, damaged, or not that of the stream."""


class RecordsGone(StreamlogError):
    """Records that follow the table's position are not in the log any more."""


@dataclass(frozen=True)
class OffsetRange:
    """Of one partition: ``start_offset <= offset < end_offset``."""

    partition: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True)
class TablePosition:
    """Of partition ``p``, what is before ``ends[p]`` is in the table."""

    stream: str
    stream_id: str
    ends: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of_summary(cls, summary: Mapping[str, str]) -> "TablePosition | None":
        """None: the snapshot has no position. Raises PositionError."""
        if OFFSETS not in summary:
            return None
        try:
            ends = {int(number): int(end) for number, end in json.loads(summary[OFFSETS]).items()}
            position = cls(summary[STREAM], summary[STREAM_ID], ends)
        except (ValueError, KeyError, AttributeError, TypeError):
            raise PositionError(f"{OFFSETS} of a snapshot is {summary[OFFSETS][:80]!r}") from None
        if any(number < 0 or end < 0 for number, end in ends.items()):
            raise PositionError(f"{OFFSETS} of a snapshot is {summary[OFFSETS][:80]!r}")
        return position

    def to_summary(self, ranges: Iterable[OffsetRange], commit_id: str) -> dict[str, str]:
        """``ranges``: what this position has more than the one before it, one for each partition."""
        added = {str(it.partition): [it.start_offset, it.end_offset] for it in ranges}
        return {
            STREAM: self.stream,
            STREAM_ID: self.stream_id,
            OFFSETS: _text({str(number): self.ends[number] for number in sorted(self.ends)}),
            RANGES: _text({number: added[number] for number in sorted(added, key=int)}),
            COMMIT_ID: commit_id,
        }

    def of_stream(self, stream: str, stream_id: str) -> "TablePosition":
        """The same, if it is of this stream; an id that one side does not know fits. Raises PositionError."""
        if self.stream != stream:
            raise PositionError(f"the table is one of stream {self.stream!r}, not of {stream!r}")
        if stream_id and self.stream_id and self.stream_id != stream_id:
            raise PositionError(
                f"the table has records of an earlier stream {stream!r} (id {self.stream_id}), which"
                f" was deleted and created again (id {stream_id}); write into another table"
            )
        return TablePosition(stream, self.stream_id or stream_id, self.ends)

    def advanced(
        self, ranges: Iterable[OffsetRange], *, loss_allowed: bool = False
    ) -> "TablePosition":
        """After these ranges. Raises PositionError where one does not begin where the table ends: records would be
        missing, or there twice. ``loss_allowed``: records may be missing that the log has not any more.
        """
        ends = dict(self.ends)
        for it in merged(ranges):
            known = ends.get(it.partition, it.start_offset)
            if it.start_offset < known or (it.start_offset > known and not loss_allowed):
                raise PositionError(
                    f"partition {it.partition}: the table ends at offset {known}, and what is to"
                    f" be added begins at {it.start_offset}"
                )
            ends[it.partition] = it.end_offset
        return TablePosition(self.stream, self.stream_id, ends)


def merged(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """One range for each partition, of pieces that follow one another in any order; those before what the log still
    has are empty. Raises PositionError where they do not follow.
    """
    found: dict[int, OffsetRange] = {}
    for it in sorted(ranges, key=lambda it: (it.partition, it.start_offset, it.end_offset)):
        before = found.get(it.partition)
        if before is None or before.start_offset == before.end_offset:
            found[it.partition] = it
        elif it.start_offset == before.end_offset:
            found[it.partition] = OffsetRange(it.partition, before.start_offset, it.end_offset)
        else:
            raise PositionError(
                f"partition {it.partition}: a piece ends at offset {before.end_offset}, and the"
                f" next one begins at {it.start_offset}"
            )
    return list(found.values())


def nearest_position(
    summaries: Iterable[Mapping[str, str] | None],
) -> TablePosition | None:
    """``summaries``: of the current snapshot and its ancestors, the newest first; None for one that has expired. None:
    no snapshot was ever committed with a position. Raises PositionError where it cannot be known.
    """
    for summary in summaries:
        if summary is None:
            raise PositionError(
                "the table's position stood in a snapshot that has expired, and later ones are of"
                " other programs; expire with `streamlog lake maintain`, which keeps it"
            )
        position = TablePosition.of_summary(summary)
        if position is not None:
            return position
    return None


def next_ranges(
    position: TablePosition,
    bounds: Mapping[int, tuple[int, int]],
    *,
    loss_allowed: bool = False,
) -> list[OffsetRange]:
    """What is to be read next of each partition. ``bounds``: where the log starts, and ends. A partition that the table
    does not know is read from where its log starts. Raises RecordsGone.
    """
    found = []
    for number, (log_start, end) in sorted(bounds.items()):
        start = position.ends.get(number, log_start)
        if end < start:
            raise RecordsGone(
                f"{position.stream}-{number}: the log ends at offset {end}, and the table at"
                f" {start}: what follows would be other records under the same offsets"
            )
        if log_start > start:
            if not loss_allowed:
                raise RecordsGone(
                    f"{position.stream}-{number}: the log starts at offset {log_start}, and the"
                    f" table ends at {start}; set --allow-loss to go on without what is between"
                )
            start = log_start
        found.append(OffsetRange(number, start, end))
    return found


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
