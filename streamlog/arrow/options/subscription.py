"""Which partitions a read is about."""

import re
from dataclasses import dataclass

from streamlog.model import TopicPartition


@dataclass(frozen=True)
class StreamSubscription:
    """By stream, by pattern or one by one. None: the only stream."""

    streams: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    @property
    def named_streams(self) -> list[str]:
        """Those that must be there."""
        return sorted({*self.streams, *(name.stream for name in self.partitions)})

    @property
    def names_nothing(self) -> bool:
        return not self.streams and not self.partitions and self.pattern is None

    def wants(self, name: TopicPartition) -> bool:
        """As with Kafka, a pattern does not reach for what is internal."""
        if self.pattern is not None:
            internal = name.stream.startswith("__")
            return not internal and re.fullmatch(self.pattern, name.stream) is not None
        return name.stream in self.streams or name in self.partitions
