"""What a checkpoint of a streaming query says: how far each partition has been read.

::

    {"v": 1, "topics": {"orders": {
        "id": "0b3c…", "p": {"0": 42, "1": 17}, "from": {"1": 5}, "cuts": {"0": [20, 31]}
    }}}

``p`` are ends, exclusive. ``from`` is where those partitions begin that this batch is the first to
read, and ``cuts`` where its tasks part: a batch that is carried out again reads the same by the
same tasks, which a sink may know by their numbers. Keys are sorted: Spark compares the text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from streamlog.errors import ConfigError
from streamlog.model import TopicPartition

VERSION: Final = 1


@dataclass(frozen=True)
class StreamOffsets:
    """By partition; one whose stream was created again counts as new."""

    ends: Mapping[TopicPartition, int]
    stream_ids: Mapping[str, str]
    begins: Mapping[TopicPartition, int] = field(default_factory=dict)
    cuts: Mapping[TopicPartition, Sequence[int]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "StreamOffsets":
        """Raises ConfigError for what this version did not write."""
        if value.get("v") != VERSION:
            problem = f"the offsets in it are of version {value.get('v')!r}, not {VERSION}"
            remedy = "install the version of streamlog that wrote them, or start a new checkpoint"
            raise ConfigError("checkpointLocation", problem, remedy)
        topics: Mapping[str, Mapping[str, Any]] = value["topics"]
        return cls(
            _by_partition(topics, "p"),
            {stream: told["id"] for stream, told in topics.items()},
            _by_partition(topics, "from"),
            _by_partition(topics, "cuts"),
        )

    def to_json(self) -> dict[str, Any]:
        topics: dict[str, Any] = {}
        for stream in sorted({name.stream for name in self.ends}):
            told = {
                "cuts": _of(stream, self.cuts),
                "from": _of(stream, self.begins),
                "id": self.stream_ids.get(stream, ""),
                "p": _of(stream, self.ends),
            }
            topics[stream] = {key: it for key, it in told.items() if it or key in ("id", "p")}
        return {"topics": topics, "v": VERSION}

    def knows(self, name: TopicPartition, stream_id: str) -> bool:
        """Whether the partition of this very stream has been read, or was to be."""
        known = self.stream_ids.get(name.stream, "")
        return name in self.ends and (stream_id in ("", known) or known == "")


def _of(stream: str, values: Mapping[TopicPartition, Any]) -> dict[str, Any]:
    return {str(n.partition): values[n] for n in sorted(values) if n.stream == stream}


def _by_partition(topics: Mapping[str, Mapping[str, Any]], key: str) -> dict[TopicPartition, Any]:
    return {
        TopicPartition(stream, int(number)): value
        for stream, told in topics.items()
        for number, value in told.get(key, {}).items()
    }
