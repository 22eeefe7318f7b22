"""Which partitions a read is about, as its options name them."""

import re
from dataclasses import dataclass

from pyspark_streamlog.options.offset_options import parse_assignment
from pyspark_streamlog.options.option_map import OptionMap
from streamlog.errors import ConfigError
from streamlog.model import TopicPartition


@dataclass(frozen=True)
class Subscription:
    """By stream, by pattern or one by one. None: the only stream."""

    streams: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    @classmethod
    def of(cls, given: OptionMap) -> "Subscription":
        """Raises ConfigError."""
        names = ("subscribe", "subscribePattern", "assign")
        named = [name for name in names if given.text(name) is not None]
        if len(named) > 1:
            raise ConfigError(named[1], f"{named[0]} is given, too", "keep one of them")
        streams = (given.text("subscribe") or "").split(",")
        assigned = given.text("assign")
        return cls(
            tuple(name.strip() for name in streams if name.strip()),
            _pattern(given.text("subscribePattern")),
            () if assigned is None else parse_assignment("assign", assigned),
        )

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


def _pattern(text: str | None) -> str | None:
    if text is not None:
        try:
            re.compile(text)
        except re.error as error:
            problem = f"{text!r} is not a regular expression ({error})"
            raise ConfigError("subscribePattern", problem, "correct it") from None
    return text
