"""What a group has committed, beside where its streams end. Pure."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from streamlog.model import TopicPartition

if TYPE_CHECKING:
    from streamlog.client.groups import CommittedInfo, GroupInfo, GroupMemberInfo


class GroupLag(NamedTuple):
    """Of a group in one partition."""

    tp: TopicPartition
    committed: "CommittedInfo | None"
    """None: it is assigned, and nothing was committed yet."""
    end_offset: int | None
    """The high watermark; None where the leader could not be asked."""
    member: "GroupMemberInfo | None"
    """Whoever reads it."""

    @property
    def lag(self) -> int | None:
        """Committed records that are yet to be read; None where that cannot be known."""
        if self.committed is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - self.committed.offset)

    def as_json(self) -> dict[str, Any]:
        """As ``--json`` shows it."""
        committed = self.committed
        return {
            "stream": self.tp.stream,
            "partition": self.tp.partition,
            "committed_offset": None if committed is None else committed.offset,
            "end_offset": self.end_offset,
            "lag": self.lag,
            "leader_epoch": None if committed is None else committed.leader_epoch,
            "metadata": None if committed is None else committed.metadata,
            "member_id": None if self.member is None else self.member.member_id,
        }


def standings(
    group: "GroupInfo",
    committed: Mapping[TopicPartition, "CommittedInfo"],
    ends: Mapping[TopicPartition, int],
) -> list[GroupLag]:
    """In order; all partitions that the group has committed something in, or reads."""
    readers = {tp: member for member in group.members for tp in member.partitions}
    return [
        GroupLag(tp, committed.get(tp), ends.get(tp), readers.get(tp))
        for tp in sorted(committed.keys() | readers.keys())
    ]


def total_lag(found: Iterable[GroupLag]) -> int | None:
    """Over what was committed; None if any of it cannot be known, or nothing was."""
    lags = [it.lag for it in found if it.committed is not None]
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known and len(known) == len(lags) else None
