"""What requests cost by their size: the time that a node spends on each kind, and how it grows.

``python -m tests.security.request_costs`` asks a node in this process, without sockets: Kafka's
APIs by dispatch, the management API by its verbs. Times are of the processor, the best of three.
The exponent is that of the size by which the time grows: 1 is linear. What takes little has none.
"""

import asyncio
import contextlib
import json
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from streamlog.access.rulebook import NO_RULES
from streamlog.access.session import Session
from streamlog.admin.verbs import Verbs
from streamlog.authority.audit import Audit
from streamlog.authority.authority import Authority
from streamlog.errors import StreamlogError
from streamlog.sections import AccessSection
from streamlog.wire import control
from streamlog.wire.header import encode_request_header
from streamlog.wire.registry import (
    ALTER_USER_SCRAM_CREDENTIALS,
    APIS,
    CREATE_ACLS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_ACLS,
    DELETE_GROUPS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_TOPIC_PARTITIONS,
    FETCH,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    SYNC_GROUP,
)
from tests.kafka_node import KafkaNode
from tests.restricted import Asker

SIZES: Final = (250, 1_000, 4_000)
SHORT_S: Final = 0.005
"""A kind whose largest request takes less needs no exponent."""
STREAMS: Final = 20
"""That there are, for requests about all of them."""

Ask = Callable[[], Awaitable[object]]


class Row(NamedTuple):
    """One kind of request."""

    listener: str
    kind: str
    seconds: tuple[float, ...]

    @property
    def exponent(self) -> float:
        first, last = self.seconds[0], self.seconds[-1]
        return math.log(last / first) / math.log(SIZES[-1] / SIZES[0])

    def line(self) -> str:
        times = " | ".join(f"{it * 1000:.1f}" for it in self.seconds)
        grows = "" if self.seconds[-1] < SHORT_S else f"{self.exponent:.2f}"
        return f"| {self.listener} | {self.kind} | {times} | {grows} |"


def kafka_bodies(size: int) -> dict[tuple[int, int], Mapping[str, Any]]:
    """Requests of each API with ``size`` items."""
    names = [f"topic-{number}" for number in range(size)]
    numbered = [{"partition_index": number} for number in range(size)]
    return {
        (METADATA, 12): {"topics": [{"name": it} for it in names]},
        (CREATE_TOPICS, 5): {
            "topics": [{"name": it, "num_partitions": 1, "replication_factor": 1} for it in names]
        },
        (DELETE_TOPICS, 6): {"topics": [{"name": it, "topic_id": None} for it in names]},
        (CREATE_PARTITIONS, 2): {"topics": [{"name": it, "count": 3} for it in names]},
        (DELETE_RECORDS, 2): {
            "topics": [{"name": "topic", "partitions": [{**it, "offset": 1} for it in numbered]}]
        },
        (DESCRIBE_CONFIGS, 4): {
            "resources": [
                {"resource_type": 2, "resource_name": it, "configuration_keys": None}
                for it in names
            ]
        },
        (INCREMENTAL_ALTER_CONFIGS, 1): {
            "resources": [
                {
                    "resource_type": 2,
                    "resource_name": "topic",
                    "configs": [{"name": it, "config_operation": 0, "value": "1"} for it in names],
                }
            ]
        },
        (CREATE_ACLS, 3): {
            "creations": [
                {
                    "resource_type": 2,
                    "resource_name": it,
                    "resource_pattern_type": 3,
                    "principal": "User:x",
                    "host": "*",
                    "operation": 3,
                    "permission_type": 3,
                }
                for it in names
            ]
        },
        (DELETE_ACLS, 3): {
            "filters": [
                {
                    "resource_type_filter": 2,
                    "resource_name_filter": it,
                    "pattern_type_filter": 3,
                    "principal_filter": None,
                    "host_filter": None,
                    "operation": 3,
                    "permission_type": 3,
                }
                for it in names
            ]
        },
        (ALTER_USER_SCRAM_CREDENTIALS, 0): {
            "deletions": [{"name": it, "mechanism": 1} for it in names],
            "upsertions": [],
        },
        (FIND_COORDINATOR, 4): {"key_type": 0, "coordinator_keys": names},
        (DESCRIBE_GROUPS, 5): {"groups": names},
        (DELETE_GROUPS, 2): {"groups_names": names},
        (LIST_OFFSETS, 7): {
            "replica_id": -1,
            "topics": [
                {"name": "topic", "partitions": [{**it, "timestamp": 1} for it in numbered]}
            ],
        },
        (OFFSET_FOR_LEADER_EPOCH, 4): {
            "replica_id": -1,
            "topics": [
                {
                    "topic": "topic",
                    "partitions": [
                        {"partition": number, "leader_epoch": 1} for number in range(size)
                    ],
                }
            ],
        },
        (OFFSET_COMMIT, 8): {
            "group_id": "group",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [
                {"name": it, "partitions": [{"partition_index": 0, "committed_offset": 1}]}
                for it in names
            ],
        },
        (OFFSET_FETCH, 8): {
            "groups": [
                {
                    "group_id": "group",
                    "topics": [{"name": it, "partition_indexes": [0]} for it in names],
                }
            ]
        },
        (OFFSET_DELETE, 0): {
            "group_id": "group",
            "topics": [{"name": it, "partitions": [{"partition_index": 0}]} for it in names],
        },
        (JOIN_GROUP, 7): {
            "group_id": "group",
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "protocol_type": "consumer",
            "protocols": [{"name": it, "metadata": b""} for it in names],
        },
        (SYNC_GROUP, 5): {
            "group_id": "group",
            "assignments": [{"member_id": it, "assignment": b""} for it in names],
        },
        (LEAVE_GROUP, 5): {"group_id": "group", "members": [{"member_id": it} for it in names]},
        (DESCRIBE_TOPIC_PARTITIONS, 0): {"topics": [{"name": it} for it in names]},
        (PRODUCE, 9): {
            "acks": 1,
            "topic_data": [
                {"name": it, "partition_data": [{"index": 0, "records": b""}]} for it in names
            ],
        },
        (FETCH, 12): {
            "max_bytes": 1,
            "topics": [{"topic": it, "partitions": [{"partition": 0}]} for it in names],
        },
    }


def management_bodies(size: int) -> dict[str, tuple[str, Any]]:
    """Verbs with bodies that have ``size`` items, or texts of so many characters."""
    long = "a." * size
    return {
        "STREAM.CREATE: subjects": (
            "STREAM.CREATE.s",
            {"name": "s", "subjects": [f"s.{number}.x" for number in range(size)]},
        ),
        "STREAM.CREATE: subjects with wildcards": (
            "STREAM.CREATE.s",
            {"name": "s", "subjects": [f"*.{number}.*.x" for number in range(size)]},
        ),
        "STREAM.CREATE: one subject": ("STREAM.CREATE.s", {"name": "s", "subjects": [long + "x"]}),
        "STREAM.CREATE: metadata": (
            "STREAM.CREATE.s",
            {"name": "s", "metadata": {f"k{number}": "v" for number in range(size)}},
        ),
        "STREAM.CREATE: republish": (
            "STREAM.CREATE.s",
            {"name": "s", "republish": {"src": ">", "dest": "{{" * size}},
        ),
        "STREAM.CREATE: subject_transform": (
            "STREAM.CREATE.s",
            {"name": "s", "subject_transform": {"src": long + ">", "dest": "{{partition(" * size}},
        ),
        "STREAM.CREATE: unknown fields": (
            "STREAM.CREATE.s",
            {"name": "s", **{f"f{number}": [{}] for number in range(size)}},
        ),
        "STREAM.UPDATE: subjects": (
            "STREAM.UPDATE.s",
            {"name": "s", "subjects": [f"s.{number}.x" for number in range(size)]},
        ),
        "STREAM.NAMES: subject": ("STREAM.NAMES", {"subject": long + ">"}),
        "STREAM.LIST: subject": ("STREAM.LIST", {"subject": long + ">"}),
        "nested JSON": ("STREAM.NAMES", None),
    }


async def seconds(ask: Ask) -> float:
    """CPU time, the best of three; no turn of the event loop is longer."""
    best = math.inf
    for _ in range(3):
        began = time.process_time()
        with contextlib.suppress(StreamlogError):  # refused at the wire
            await ask()
        best = min(best, time.process_time() - began)
    return best


async def kafka_rows(node: KafkaNode, *rules: str) -> list[Row]:
    listener = f"Kafka, {'with' if rules else 'without'} rights"
    asker = Asker(node.context, *rules, audit=Audit())
    found: dict[tuple[int, int], list[float]] = {}
    for size in SIZES:
        for (key, version), body in kafka_bodies(size).items():
            api = APIS[key]
            data = encode_request_header(api, version, 7, "costs")
            data += control.encode_request(api, version, body)
            took = await seconds(lambda data=data: asker.ask(data))  # type: ignore[misc]
            found.setdefault((key, version), []).append(took)
    asker.close()
    return [Row(listener, APIS[key].name, tuple(it)) for (key, _), it in found.items()]


async def management_rows(node: KafkaNode, *, restricted: bool) -> list[Row]:
    authority = Authority(AccessSection(), lambda: NO_RULES, Audit(), enforced=restricted)
    leaders: Any = SimpleNamespace(states=_no_states)
    for_all = Verbs(node.metadata, leaders, domain="streamlog", now_ms=lambda: 0)  # type: ignore[arg-type]
    verbs = for_all.seen_by(authority.access_of(Session()))
    verbs.streams.freshness.catch_up = _at_once  # type: ignore[method-assign]
    listener = f"NATS, {'without' if restricted else 'with'} rights"
    found: dict[str, list[float]] = {}
    for size in SIZES:
        for kind, (verb, body) in management_bodies(size).items():
            data = b"[" * size if body is None else json.dumps(body).encode()
            took = await seconds(lambda verb=verb, data=data: verbs.reply(verb, data, {}))  # type: ignore[misc]
            found.setdefault(kind, []).append(took)
    return [Row(listener, kind, tuple(it)) for kind, it in found.items()]


async def _no_states(*_: object, **__: object) -> dict[object, object]:
    return {}


async def _at_once() -> None:
    pass


async def main() -> None:
    """Print the table."""
    logging.disable()
    node = KafkaNode()
    node.listener.open()
    node.metadata.register(9092)
    for number in range(STREAMS):
        await node.add_stream(f"stream-{number}")
    rows = [
        *await kafka_rows(node),
        *await kafka_rows(node, "describe topic *", "read topic *", "read group *"),
        *await management_rows(node, restricted=True),
        *await management_rows(node, restricted=False),
    ]
    await node.listener.stop()
    node.close()
    sizes = " | ".join(f"{it:,} items (ms)" for it in SIZES)
    print(f"| listener | request | {sizes} | exponent |")
    print("|---|---|" + "---:|" * (len(SIZES) + 1))
    for row in sorted(rows, key=lambda it: -it.seconds[-1]):
        print(row.line())


if __name__ == "__main__":
    asyncio.run(main())
