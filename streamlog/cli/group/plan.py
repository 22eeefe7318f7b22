"""What a new position comes to in one partition. Pure."""

from typing import TYPE_CHECKING, Any, NamedTuple

from streamlog.cli.group.target import Shift, Target
from streamlog.client.position import Earliest, Latest, Offset, Timestamp
from streamlog.errors import BrokenInvariant, InvalidRequest
from streamlog.model import TopicPartition

if TYPE_CHECKING:
    from streamlog.client.groups import CommittedInfo


class LogExtent(NamedTuple):
    """The records that a consumer can read: from ``start``, below ``end``."""

    start: int
    end: int


class Change(NamedTuple):
    """Of what a group has committed in one partition."""

    tp: TopicPartition
    committed: "CommittedInfo | None"
    offset: int
    """Where it is to go on."""
    skipped: int
    """Records that are still there, and that the group would have read."""
    repeated: int
    """Offsets that it reads once more."""
    note: str = ""
    """Why it is not quite what was asked for."""

    @property
    def effect(self) -> str:
        """In words."""
        if self.committed is None:
            words = "nothing was committed yet"
        elif self.skipped:
            words = f"skips {_records(self.skipped)}"
        elif self.repeated:
            words = f"repeats {_records(self.repeated)}"
        else:
            words = "no change" if self.offset == self.committed.offset else "skips nothing"
        return f"{words} ({self.note})" if self.note else words

    def as_json(self) -> dict[str, Any]:
        """As ``--json`` shows it."""
        return {
            "stream": self.tp.stream,
            "partition": self.tp.partition,
            "committed_offset": None if self.committed is None else self.committed.offset,
            "metadata": None if self.committed is None else self.committed.metadata,
            "new_offset": self.offset,
            "skipped": self.skipped,
            "repeated": self.repeated,
            "note": self.note or None,
        }


def change_of(
    tp: TopicPartition,
    committed: "CommittedInfo | None",
    extent: LogExtent,
    target: Target,
    at_time: int | None = None,
) -> Change:
    """``at_time``: the first offset of a target's time, if there is one.

    Raises InvalidRequest where the target is not in the partition.
    """
    offset, note = _offset(tp, committed, extent, target, at_time)
    if not extent.start <= offset <= extent.end:
        raise BrokenInvariant(f"offset {offset} is outside of {extent}")
    if committed is None:
        return Change(tp, None, offset, 0, 0, note)
    skipped = max(0, offset - max(committed.offset, extent.start))
    return Change(tp, committed, offset, skipped, max(0, committed.offset - offset), note)


def _offset(
    tp: TopicPartition,
    committed: "CommittedInfo | None",
    extent: LogExtent,
    target: Target,
    at_time: int | None,
) -> tuple[int, str]:
    match target:
        case Earliest():
            return extent.start, ""
        case Latest():
            return extent.end, ""
        case Timestamp():
            return (extent.end, "no record is so late") if at_time is None else (at_time, "")
        case Shift(records):
            return _shifted(tp, committed, extent, records)
        case Offset(offset):
            if extent.start <= offset <= extent.end:
                return offset, ""
    raise InvalidRequest(
        f"{tp} has no offset {offset}, only {extent.start} to {extent.end};"
        " choose one of these, or other partitions with --partition"
    )


def _shifted(
    tp: TopicPartition, committed: "CommittedInfo | None", extent: LogExtent, records: int
) -> tuple[int, str]:
    if committed is None:
        text = f"nothing is committed in {tp} to count from; use --to instead of --shift-by"
        raise InvalidRequest(text)
    wanted = committed.offset + records
    if wanted < extent.start:
        return extent.start, f"the log begins at {extent.start}"
    if wanted > extent.end:
        return extent.end, f"the log ends at {extent.end}"
    return wanted, ""


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"
