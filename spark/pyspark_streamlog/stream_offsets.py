"""What a checkpoint of a streaming query says: how far each partition has been read.

::

    {"v": 1, "topics": {"orders": {"id": "0b3c…", "p": {"0": 42, "1": 17}, "from": {"1": 5}}}}

``p`` are ends, exclusive. ``from`` is where those partitions begin that this batch is the first to
read, so that a batch that is read again reads the same. Keys are sorted: Spark compares the text.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from streamlog.errors import ConfigError
from streamlog.model import TopicPartition

VERSION: Final = 1


@dataclass(frozen=True)
class StreamOffsets:
    """By partition; one whose stream was created anew counts as new."""

    ends: Mapping[TopicPartition, int]
    stream_ids: Mapping[str, str]
    begins: Mapping[TopicPartition, int] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "StreamOffsets":
        """Raises ConfigError for what this version did not write."""
        if value.get("v") != VERSION:
            problem = f"the offsets in it are of version {value.get('v')!r}, not {VERSION}"
            remedy = "install the version of streamlog that wrote them, or start a new checkpoint"
            raise ConfigError("checkpointLocation", problem, remedy)
        ends: dict[TopicPartition, int] = {}
        begins: dict[TopicPartition, int] = {}
        ids: dict[str, str] = {}
        for stream, told in value["topics"].items():
            ids[stream] = told["id"]
            ends |= {TopicPartition(stream, int(n)): at for n, at in told["p"].items()}
            begins |= {TopicPartition(stream, int(n)): at for n, at in told.get("from", {}).items()}
        return cls(ends, ids, begins)

    def to_json(self) -> dict[str, Any]:
        topics: dict[str, Any] = {}
        for stream in sorted({name.stream for name in self.ends}):
            told = {"id": self.stream_ids.get(stream, ""), "p": _of(stream, self.ends)}
            if begins := _of(stream, self.begins):
                told = {"from": begins, **told}
            topics[stream] = told
        return {"topics": topics, "v": VERSION}

    def knows(self, name: TopicPartition, stream_id: str) -> bool:
        """Whether the partition of this very stream has been read, or was to be."""
        known = self.stream_ids.get(name.stream, "")
        return name in self.ends and (stream_id in ("", known) or known == "")


def _of(stream: str, offsets: Mapping[TopicPartition, int]) -> dict[str, int]:
    return {str(n.partition): offsets[n] for n in sorted(offsets) if n.stream == stream}
