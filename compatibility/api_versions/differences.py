"""What differs between the APIs of a node and of a Kafka broker, with the reasons. Pure, but for the kept table."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

TABLE: Final = Path(__file__).with_name("kafka.json")


class Versions(NamedTuple):
    """Both ends are inclusive."""

    low: int
    high: int

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"


class KafkaApi(NamedTuple):
    """An API of Kafka's."""

    name: str
    versions: Versions


class Difference(NamedTuple):
    """Of one API."""

    key: int
    name: str
    kafka: Versions | None
    """None: a broker does not list it."""
    node: Versions | None
    """None: a node does not list it."""
    reason: str
    """"": there is none."""


_TABLE: Final = json.loads(TABLE.read_text())
KAFKA_VERSION: Final[str] = _TABLE["version"]
KAFKA: Final[Mapping[int, KafkaApi]] = {
    it["key"]: KafkaApi(it["name"], Versions(it["min"], it["max"])) for it in _TABLE["apis"]
}

_SHARE_STATES: Final = (
    "between Kafka's brokers and their share coordinators; here a share group's coordinator keeps how far the group has"
    " come, and nodes ask it in a way of their own"
)
_TOKENS: Final = (
    "no delegation tokens: clients log in by SCRAM, PLAIN, OAUTHBEARER or a certificate"
)
_STREAMS: Final = "the protocol of Kafka Streams (KIP-1071), which does without by default (`group.protocol=classic`)"
_TELEMETRY: Final = "metrics of clients are not collected; clients do without by themselves"
_QUORUM: Final = "voters are changed by `streamlog cluster add-voter` and `remove-voter`"
_BETWEEN: Final = (
    "between nodes, each of which is a broker and may be the controller; a Kafka broker leaves it to its"
    " controller's listener"
)

REASONS: Final[Mapping[int, str]] = {
    0: "0 to 2 are listed, and refused: an old librdkafka compresses only for a broker that lists them"
    " (KAFKA-18659)",
    10: "6 is for share coordinators, and there are none",
    22: "6 is for two-phase commits (KIP-939), and a broker lists it only with unstable versions turned on; a node"
    " answers it as 5",
    24: "4 and 5 are for brokers; nodes have a request of their own",
    34: "a node has one folder for its logs",
    **dict.fromkeys((38, 39, 40, 41), _TOKENS),
    **dict.fromkeys((52, 53, 54, 58, 59), _BETWEEN),
    57: "the feature level is raised by `streamlog cluster features upgrade`",
    64: "a node is removed by `streamlog cluster remove-node`",
    **dict.fromkeys((71, 72), _TELEMETRY),
    74: "only topics and nodes have configs, and Metadata and DescribeCluster list these",
    **dict.fromkeys((83, 84, 85, 86, 87), _SHARE_STATES),
    **dict.fromkeys((80, 81), _QUORUM),
    **dict.fromkeys((88, 89), _STREAMS),
}


def differences(node: Mapping[int, Versions], names: Mapping[int, str]) -> list[Difference]:
    """By their keys. ``node``: what it lists; ``names``: of APIs that Kafka's brokers do not list."""
    found: list[Difference] = []
    for key in sorted({*KAFKA, *node}):
        kafka, own = KAFKA.get(key), node.get(key)
        if kafka is not None and kafka.versions == own:
            continue
        name = names.get(key, str(key)) if kafka is None else kafka.name
        theirs = None if kafka is None else kafka.versions
        found.append(Difference(key, name, theirs, own, REASONS.get(key, "")))
    return found
