"""Filters: what narrows the ranges of offsets that are read, and which rows then come out.

Filters of a query make ranges narrower: fewer bytes are read, no row is left out. Of filters on the timestamp only a
lower bound does that: a producer's clock may go back, so records that are early enough may come after one that is too
late. Rows are filtered one by one, by subject and by time.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from streamlog.arrow.location import Location, PartitionRange
from streamlog.errors import ConfigError
from streamlog.model import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

OFFSET_MAX: Final = 2**63 - 1
TOKEN: Final = r"[^.]+"
_PLAIN: Final = re.compile(r"\w", re.ASCII)


@dataclass(frozen=True)
class PushedFilters:
    """What a row must fulfil: all of it."""

    offset_min: int = 0
    offset_end: int = OFFSET_MAX
    timestamp_min_ms: int | None = None
    partitions: frozenset[int] | None = None

    def of(self, ranges: Iterable[PartitionRange], location: Location) -> list[PartitionRange]:
        """A partition that no row can be in has an empty range."""
        ranges = list(ranges)
        earliest = self._earliest(ranges, location)
        return [self._narrowed(range_, earliest.get(range_.name, 0)) for range_ in ranges]

    def _earliest(
        self, ranges: list[PartitionRange], location: Location
    ) -> Mapping[TopicPartition, int]:
        if self.timestamp_min_ms is None:
            return {}
        found = location.offsets_at({range_.name: self.timestamp_min_ms for range_ in ranges})
        return {name: OFFSET_MAX if at is None else at for name, at in found.items()}

    def _narrowed(self, range_: PartitionRange, earliest: int) -> PartitionRange:
        start = max(range_.start_offset, self.offset_min, earliest)
        end = min(range_.end_offset, self.offset_end)
        if self.partitions is not None and range_.name.partition not in self.partitions:
            end = start
        if start >= end:
            start = end = range_.end_offset
        return replace(range_, start_offset=start, end_offset=end)


EVERYTHING: Final = PushedFilters()


@dataclass(frozen=True)
class RowFilter:
    """What a row must fulfil: all of it."""

    subjects: tuple[str, ...] = ()
    """NATS subjects, with wildcards: one of them. None: any, and no subject too."""
    timestamp_min_ms: int | None = None
    timestamp_end_ms: int | None = None

    @property
    def columns(self) -> list[str]:
        """Those that it looks at."""
        has_times = self.timestamp_min_ms is not None or self.timestamp_end_ms is not None
        return ["subject"] * bool(self.subjects) + ["timestamp"] * has_times

    def rows_of(self, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        """The rows of the batch that fulfil it, in their order."""
        import pyarrow as pa
        from pyarrow import compute

        masks = []
        if self.subjects:
            masks.append(self._of_subjects(batch.column("subject")))
        time_type = pa.timestamp("us", tz="UTC")
        if self.timestamp_min_ms is not None:
            least = pa.scalar(self.timestamp_min_ms * 1_000, pa.int64()).cast(time_type)
            masks.append(compute.greater_equal(batch.column("timestamp"), least))
        if self.timestamp_end_ms is not None:
            end = pa.scalar(self.timestamp_end_ms * 1_000, pa.int64()).cast(time_type)
            masks.append(compute.less(batch.column("timestamp"), end))
        if not masks:
            return batch
        mask, *others = masks
        for other in others:
            mask = compute.and_(mask, other)
        return batch if compute.all(mask).as_py() else batch.filter(mask)

    def _of_subjects(self, column: "pa.Array") -> "pa.Array":
        """A row without a subject does not match."""
        import pyarrow as pa
        from pyarrow import compute

        if not any(set("*>") & set(it.split(".")) for it in self.subjects):
            return compute.is_in(column, pa.array(self.subjects, column.type))
        matches = compute.match_substring_regex(column, subjects_regex(self.subjects))
        return compute.fill_null(matches, False)


def check_subject_filter(subject: str, option: str) -> None:
    """Raises ConfigError for what is no subject of NATS."""
    tokens = subject.split(".")
    if not all(tokens) or ">" in tokens[:-1] or any(it.isspace() for it in subject):
        remedy = "write tokens with dots between them: * is any one, > at the end is one or more"
        raise ConfigError(option, f"{subject!r} is no subject", remedy)


def subjects_regex(subjects: Iterable[str]) -> str:
    """Of RE2, for whole subjects. A wildcard is one only where it is a whole token."""
    return f"^(?:{'|'.join(map(_regex, subjects))})$"


def _regex(subject: str) -> str:
    tokens = subject.split(".")
    parts = [TOKEN if it == "*" else _literal(it) for it in tokens]
    if tokens[-1] == ">":
        parts[-1] = rf"{TOKEN}(?:\.{TOKEN})*"
    return r"\.".join(parts)


def _literal(token: str) -> str:
    """RE2 knows other escapes than ``re``."""
    return "".join(it if _PLAIN.match(it) or it > "\x7f" else f"\\x{{{ord(it):x}}}" for it in token)
