"""Topic configs of Kafka's that have no effect here, and are kept nevertheless. Pure.

Kafka's tools, Connect, Streams and MirrorMaker set them by their own defaults, and compare what they read back with
what they have set. So a stream keeps their texts, checked as Kafka checks them; ``why`` says what happens instead.
The rows are those of Kafka 4.2's ``TopicConfig`` that ``StreamConfig`` has no setting for.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Final, Literal

from streamlog.errors import InvalidStreamConfig

INERT_KEYS: Final = "streamlog.kafka."
"""Before their names, in JetStream's metadata."""
_INT: Final = 2**31 - 1
_LONG: Final = 2**63 - 1

Kind = Literal["boolean", "int", "long", "list"]
_THROTTLED: Final = re.compile(r"(\*|[0-9]+:[0-9]+(,[0-9]+:[0-9]+)*)?")


@dataclass(frozen=True, slots=True)
class InertConfig:
    """A row of the table."""

    name: str
    kind: Kind
    default: str
    why: str
    _: KW_ONLY
    low: int = 0
    high: int = 0
    """Of a number; 0: of its kind."""
    also: int | None = None
    """A number out of the range that is taken, too."""

    @property
    def highest(self) -> int:
        return self.high or (_INT if self.kind == "int" else _LONG)

    @property
    def values(self) -> str:
        """For people."""
        match self.kind:
            case "boolean":
                return "false" if self.name == _NO_COPIES else "true or false"
            case "list":
                return "PARTITION:NODE,…, or *"
        also = "" if self.also is None else f", or {self.also}"
        return (f"{self.low} to {self.highest}" if self.high else f"from {self.low}") + also

    def check(self, text: str) -> str:
        """``text`` as it is kept. Raises InvalidStreamConfig, in Kafka's words."""
        told = text.strip()
        match self.kind:
            case "boolean":
                told = told.lower()
                if told not in ("true", "false"):
                    self._refuse(text, "Expected value to be either true or false")
                if (self.name, told) == (_NO_COPIES, "true"):
                    raise InvalidStreamConfig(
                        f"{_NO_COPIES}: not supported: copies to the object store cannot be paused for a topic"
                    )
            case "list":
                if not _THROTTLED.fullmatch(told):
                    self._refuse(text, "it is * or partition:node, with commas between them")
            case _:
                self._check_number(text)
                told = str(int(told))
        return told

    def _check_number(self, text: str) -> None:
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text.strip()) or not -_LONG <= int(text) <= _LONG:
            self._refuse(text, f"Not a number of type {self.kind.upper()}")
        number = int(text)
        if number == self.also:
            return
        if number < self.low:
            self._refuse(text, f"Value must be at least {self.low}")
        if number > self.highest:
            self._refuse(text, f"Value must be no more than {self.highest}")

    def _refuse(self, text: str, why: str) -> None:
        raise InvalidStreamConfig(f"Invalid value {text} for configuration {self.name}: {why}")


_NO_COPIES: Final = "remote.log.copy.disable"
_SYNC: Final = (
    "Syncs go by {sync}: with commit, the default, every record is synced before its ack. With interval or os no number"
    " here makes a sync come earlier."
)
_LEVEL: Final = "Each codec has one level."
_THROTTLE: Final = "Moves of partitions are limited by the node's settings, not by topics."
_BEFORE: Final = "A record may be as old as its producer says."
_AFTER: Final = "A record whose time is more than an hour ahead is refused, whatever is set."

_ROWS: Final = (
    InertConfig("compression.gzip.level", "int", "-1", _LEVEL, low=1, high=9, also=-1),
    InertConfig("compression.lz4.level", "int", "9", _LEVEL, low=1, high=17),
    InertConfig("compression.zstd.level", "int", "3", _LEVEL, low=-131_072, high=22),
    InertConfig("file.delete.delay.ms", "long", "60000", "Files go as soon as no reader has them open."),
    InertConfig("flush.messages", "long", str(_LONG), _SYNC, low=1),
    InertConfig("flush.ms", "long", str(_LONG), _SYNC),
    InertConfig("follower.replication.throttled.replicas", "list", "", _THROTTLE),
    InertConfig("leader.replication.throttled.replicas", "list", "", _THROTTLE),
    InertConfig("message.timestamp.after.max.ms", "long", "3600000", _AFTER),
    InertConfig("message.timestamp.before.max.ms", "long", str(_LONG), _BEFORE),
    InertConfig("preallocate", "boolean", "false", "Segments grow as they are written."),
    InertConfig(_NO_COPIES, "boolean", "false", "Tiered storage of a topic is not turned off."),
    InertConfig(
        "remote.log.delete.on.disable", "boolean", "false", "Tiered storage of a topic is not turned off."
    ),
    InertConfig("segment.index.bytes", "int", "10485760", "Indexes are as large as their segments need.", low=4),
    InertConfig("segment.jitter.ms", "long", "0", "Segments are closed at their size or age; no time is drawn."),
)  # fmt: skip
INERT_CONFIGS: Final[Mapping[str, InertConfig]] = {row.name: row for row in _ROWS}


def checked(configs: Mapping[str, str]) -> dict[str, str]:
    """In the order of the table; what is a default is kept as well. Raises InvalidStreamConfig."""
    for name in configs:
        if name not in INERT_CONFIGS:
            raise InvalidStreamConfig(
                f"inert_configs: {name[:60]!r} is none of {', '.join(INERT_CONFIGS)}"
            )
    return {
        name: row.check(configs[name]) for name, row in INERT_CONFIGS.items() if name in configs
    }


def to_metadata(configs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Keys and values for JetStream's metadata."""
    return ((INERT_KEYS + name, text) for name, text in configs.items())
