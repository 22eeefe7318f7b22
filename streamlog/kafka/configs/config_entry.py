"""One configuration entry as DescribeConfigs tells it, with Kafka's numbers for what it is."""

from enum import IntEnum
from typing import Any, NamedTuple


class ConfigSource(IntEnum):
    """Who has said so; see KIP-226."""

    TOPIC = 1
    NODE = 4
    """The node's settings: its file or its environment."""
    DEFAULT = 5


class ConfigKind(IntEnum):
    """What the text of a value stands for; see KIP-569."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Synonym(NamedTuple):
    """What is in force where none before it in a list of these says anything."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """The first of ``synonyms`` is in force."""

    name: str
    kind: ConfigKind
    documentation: str
    synonyms: tuple[Synonym, ...]
    read_only: bool

    def told(self, *, synonyms: bool, documentation: bool) -> dict[str, Any]:
        """The fields of the answer. Nothing that is secret has a topic config or Kafka's name."""
        in_force = self.synonyms[0]
        return {
            "name": self.name,
            "value": in_force.value,
            "read_only": self.read_only,
            "config_source": in_force.source,
            "is_sensitive": False,
            "synonyms": [it._asdict() for it in self.synonyms] if synonyms else [],
            "config_type": self.kind,
            "documentation": self.documentation if documentation else None,
        }
