"""What requests cost by their size: the time that a node spends on each kind, and how it grows.

``python -m tests.security.request_costs`` asks a node in this process: all of Kafka's APIs by
dispatch, all verbs of the management API, all routes of HTTP over a socket. Times are of the
processor, the best of three: of the whole request, and of the longest time for which it held the
event loop, which is what others wait for. The exponent is that of the size by which the time grows:
1 is linear. What takes little has none. Kinds that take less than ``SHOWN_S`` are counted only.
"""

import asyncio
import contextlib
import json
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields, is_dataclass
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, cast, get_args, get_origin
from uuid import UUID

from kio.index import load_request_schema

from streamlog.acl.rules import NO_RULES
from streamlog.authn.session import Session
from streamlog.authz.audit import Audit
from streamlog.authz.service import AuthorizationService
from streamlog.config import AuthorizationSection, HttpSection
from streamlog.control.operation import Caller
from streamlog.errors import PartitionNotFound, StreamlogError
from streamlog.fairness import cooperatively
from streamlog.http.console.console import Console
from streamlog.http.endpoints import HttpEndpoints, Readiness
from streamlog.http.gauges.partition_gauges import PartitionGauges, PartitionScrape, PartitionTotals
from streamlog.jetstream.dispatcher import RequestDispatcher
from streamlog.model import TopicPartition
from streamlog.wire import api_messages
from streamlog.wire.header import encode_request_header
from streamlog.wire.registry import (
    ADD_PARTITIONS_TO_TXN,
    ALTER_SHARE_GROUP_OFFSETS,
    ALTER_USER_SCRAM_CREDENTIALS,
    APIS,
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    CREATE_ACLS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_ACLS,
    DELETE_GROUPS,
    DELETE_RECORDS,
    DELETE_SHARE_GROUP_OFFSETS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    DESCRIBE_TOPIC_PARTITIONS,
    DESCRIBE_TRANSACTIONS,
    FETCH,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    SHARE_GROUP_DESCRIBE,
    SHARE_GROUP_HEARTBEAT,
    SYNC_GROUP,
    TXN_OFFSET_COMMIT,
    Api,
)
from tests.kafka_node import KafkaNode
from tests.page_world import image, moment, partition, stream
from tests.partition_statistics import partition_statistics
from tests.restricted import Asker

SIZES: Final = (250, 1_000, 4_000)
WAITS: Final = frozenset({"DescribeShareGroupOffsets"})
"""For coordinators; here there are none, and its time would be that of waiting."""
SHOWN_S: Final = 0.005
SHORT_S: Final = 0.005
"""A kind whose largest request takes less needs no exponent."""
STREAMS: Final = 20
"""That there are, for requests about all of them."""

Ask = Callable[[], Awaitable[object]]


class Cost(NamedTuple):
    """Of one request, in CPU time."""

    seconds: float
    held_s: float
    """The longest time between two turns of others."""


class Row(NamedTuple):
    """One kind of request."""

    listener: str
    kind: str
    costs: tuple[Cost, ...]

    @property
    def exponent(self) -> float:
        first, last = self.costs[0].seconds, self.costs[-1].seconds
        return math.log(last / first) / math.log(SIZES[-1] / SIZES[0])

    def line(self) -> str:
        times = " | ".join(f"{it.seconds * 1000:.1f}" for it in self.costs)
        held = max(it.held_s for it in self.costs) * 1000
        grows = "" if self.costs[-1].seconds < SHORT_S else f"{self.exponent:.2f}"
        return f"| {self.listener} | {self.kind} | {times} | {held:.1f} | {grows} |"


def kafka_bodies(size: int) -> dict[tuple[int, int], Mapping[str, Any]]:
    """Requests of each API with ``size`` items."""
    names = [f"topic-{number}" for number in range(size)]
    numbered = [{"partition_index": number} for number in range(size)]
    return {
        (METADATA, 12): {
            "topics": [{"name": it} for it in names],
            "include_topic_authorized_operations": True,
        },
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
        (DESCRIBE_GROUPS, 5): {"groups": names, "include_authorized_operations": True},
        (DELETE_GROUPS, 2): {"groups_names": names},
        (CONSUMER_GROUP_DESCRIBE, 1): {"group_ids": names, "include_authorized_operations": True},
        (CONSUMER_GROUP_HEARTBEAT, 1): {
            "group_id": "group",
            "member_id": "m",
            "member_epoch": 0,
            "rebalance_timeout": 10_000,
            "subscribed_topic_names": names,
            "topic_partitions": [],
        },
        (SHARE_GROUP_HEARTBEAT, 1): {
            "group_id": "group",
            "member_id": "m",
            "member_epoch": 0,
            "subscribed_topic_names": names,
        },
        (SHARE_GROUP_DESCRIBE, 1): {"group_ids": names, "include_authorized_operations": True},
        (SHARE_FETCH, 2): {
            "group_id": "group",
            "member_id": "m",
            "share_session_epoch": 0,
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": 1_000_000,
            "max_records": 500,
            "batch_size": 500,
            "topics": [
                {
                    "topic_id": UUID(int=1),
                    "partitions": [{**it, "acknowledgement_batches": []} for it in numbered],
                }
            ],
            "forgotten_topics_data": [],
        },
        (SHARE_ACKNOWLEDGE, 2): {
            "group_id": "group",
            "member_id": "m",
            "share_session_epoch": 1,
            "topics": [
                {
                    "topic_id": UUID(int=1),
                    "partitions": [
                        {
                            **it,
                            "acknowledgement_batches": [
                                {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
                            ],
                        }
                        for it in numbered
                    ],
                }
            ],
        },
        (DESCRIBE_SHARE_GROUP_OFFSETS, 1): {
            "groups": [{"group_id": it, "topics": None} for it in names]
        },
        (ALTER_SHARE_GROUP_OFFSETS, 0): {
            "group_id": "group",
            "topics": [
                {
                    "topic_name": "topic",
                    "partitions": [{**it, "start_offset": 1} for it in numbered],
                }
            ],
        },
        (DELETE_SHARE_GROUP_OFFSETS, 0): {
            "group_id": "group",
            "topics": [{"topic_name": it} for it in names],
        },
        (LIST_OFFSETS, 7): {
            "replica_id": -1,
            "topics": [
                {"name": "topic", "partitions": [{**it, "timestamp": 1} for it in numbered]}
            ],
        },
        (DESCRIBE_PRODUCERS, 0): {
            "topics": [{"name": "topic", "partition_indexes": list(range(size))}]
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
        (TXN_OFFSET_COMMIT, 5): {
            "transactional_id": "id",
            "group_id": "group",
            "producer_id": 1,
            "producer_epoch": 0,
            "generation_id": -1,
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
        (ADD_PARTITIONS_TO_TXN, 3): {
            "v3_and_below_transactional_id": "id",
            "v3_and_below_producer_id": 1,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [{"name": it, "partitions": [0]} for it in names],
        },
        (DESCRIBE_TRANSACTIONS, 0): {"transactional_ids": names},
        (LIST_TRANSACTIONS, 2): {"state_filters": names, "producer_id_filters": []},
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
        "STREAM.CREATE: sources": (
            "STREAM.CREATE.s",
            {"name": "s", "sources": [{"name": f"o{number}"} for number in range(size)]},
        ),
        "STREAM.CREATE: transforms of a source": (
            "STREAM.CREATE.s",
            {
                "name": "s",
                "sources": [
                    {
                        "name": "o",
                        "subject_transforms": [
                            {"src": f"*.{number}", "dest": ""} for number in range(size)
                        ],
                    }
                ],
            },
        ),
        "STREAM.CREATE: a mirror's filter": (
            "STREAM.CREATE.s",
            {"name": "s", "mirror": {"name": "o" * size, "filter_subject": long + ">"}},
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


async def cost(ask: Ask) -> Cost:
    """The best of three."""
    costs = []
    for _ in range(3):
        held_s = [0.0]
        watching = asyncio.create_task(_watch(held_s))
        await asyncio.sleep(0)
        began = time.process_time()
        with contextlib.suppress(StreamlogError):  # refused at the wire
            await asyncio.create_task(_asked(ask))
        seconds = time.process_time() - began
        await asyncio.sleep(0)
        watching.cancel()
        costs.append(Cost(seconds, max(held_s)))
    return Cost(min(it.seconds for it in costs), min(it.held_s for it in costs))


async def _asked(ask: Ask) -> None:
    """In a task of its own, as a connection is."""
    await ask()


async def _watch(held_s: list[float]) -> None:
    """A turn each time that there is one; what threads do holds nobody."""
    at = time.thread_time()
    while True:
        await asyncio.sleep(0)
        now = time.thread_time()
        held_s.append(now - at)
        at = now


def any_body(schema: Any, size: int) -> dict[str, Any]:
    """Of an API that has no request above: so many items in each list, or a long text."""
    has_lists = any(_item(field.type) is not None for field in fields(schema))
    return {
        field.name: _any_value(field.type, field.metadata.get("kafka_type"), size, has_lists)
        for field in fields(schema)
    }


def _any_value(annotation: Any, kind: str | None, size: int, has_lists: bool) -> Any:
    item: Any = _item(annotation)
    if item is not None:
        if is_dataclass(item):
            return [any_body(item, 1) for _ in range(size)]
        return [_scalar(kind, number, 8) for number in range(size)]
    if is_dataclass(annotation):
        return any_body(annotation, 1)
    return _scalar(kind, 1, 8 if has_lists or size == 1 else 7 * size)


def _item(annotation: Any) -> Any:
    """What a list is of; None of anything else."""
    found = [annotation, *get_args(annotation)]
    return next((get_args(it)[0] for it in found if get_origin(it) is tuple), None)


def _scalar(kind: str | None, number: int, length: int) -> Any:
    match kind:
        case "string":
            return f"{number:0{length}}"
        case "bytes" | "records":
            return b"x" * length
        case "uuid":
            return UUID(int=number)
        case "bool":
            return False
        case _:
            return number % 100


def kafka_requests(size: int) -> dict[str, tuple[Api, int, Mapping[str, Any]]]:
    """One of each API that there is, by its name."""
    found = {
        APIS[key].name: (APIS[key], version, it)
        for (key, version), it in kafka_bodies(size).items()
    }
    for api in APIS.values():
        if api.name not in found:
            schema = load_request_schema(api.key, api.version_max)
            found[api.name] = (api, api.version_max, any_body(schema, size))
    found["Metadata of all"] = (APIS[METADATA], 12, {"topics": None})
    return found


async def kafka_rows(node: KafkaNode, *rules: str) -> list[Row]:
    listener = f"Kafka, {'with' if rules else 'without'} rights"
    asker = Asker(node.context, *rules, audit=Audit())
    found: dict[str, list[Cost]] = {}
    for size in SIZES:
        for kind, (api, version, body) in kafka_requests(size).items():
            if kind in WAITS:
                continue
            data = encode_request_header(api, version, 7, "costs")
            data += api_messages.encode_request(api, version, body)
            took = await cost(lambda data=data: asker.ask(data))  # type: ignore[misc]
            found.setdefault(kind, []).append(took)
    asker.close()
    return [Row(listener, kind, tuple(it)) for kind, it in found.items()]


async def management_rows(node: KafkaNode, *, restricted: bool) -> list[Row]:
    authorization = AuthorizationService(
        AuthorizationSection(), lambda: NO_RULES, Audit(), enforced=restricted
    )
    service = node.context.control_service
    assert service is not None
    service.leaders = cast("Any", SimpleNamespace(states=_no_states))
    service.freshness.catch_up = _at_once  # type: ignore[method-assign]
    caller = Caller(Session(), authorization.access_of(Session()), by="NATS")
    verbs = RequestDispatcher(service, domain="streamlog", now_ms=lambda: 0).of(caller)
    listener = f"NATS, {'without' if restricted else 'with'} rights"
    found: dict[str, list[Cost]] = {}
    for size in SIZES:
        for kind, (verb, body) in management_requests(verbs, size).items():
            data = b"[" * size if body is None else json.dumps(body).encode()
            took = await cost(lambda verb=verb, data=data: verbs.reply(verb, data, {}))  # type: ignore[misc]
            found.setdefault(kind, []).append(took)
    return [Row(listener, kind, tuple(it)) for kind, it in found.items()]


def management_requests(verbs: RequestDispatcher, size: int) -> dict[str, tuple[str, Any]]:
    """Those above, and of each verb one with many fields, which it does not know."""
    many: dict[str, Any] = {f"f{number}": [{}] for number in range(size)}
    others = {f"{verb}: unknown fields": (it, many) for verb, it in all_verbs(verbs).items()}
    return {**management_bodies(size), **others}


def all_verbs(verbs: RequestDispatcher) -> dict[str, str]:
    """As they are asked, by their names."""
    routes = verbs._routes
    return {
        **{verb: verb for verb in routes._plain},
        **{verb: f"{verb}.s" for verb in routes._of_stream},
        **{verb: f"{verb}.s.c" for verb in routes._of_consumer},
    }


def http_requests(path: str, size: int) -> dict[str, bytes]:
    """Of one route: what aiohttp takes of long lines, many headers and bodies, and what not."""
    kinds = {
        "query": ("?" + "&".join(f"a{number}=1" for number in range(size)), "", b""),
        "a long value": (f"?filter={'x' * size}", "", b""),
        "escapes": (f"?filter={'%41' * size}", "", b""),
        "headers": ("", "".join(f"X-{number}: 1\r\n" for number in range(size)), b""),
        "cookies": ("", f"Cookie: {'c=1; ' * size}\r\n", b""),
        "Authorization": ("", f"Authorization: Basic {'YTpi' * size}\r\n", b""),
        "a body": ("", f"Content-Length: {100 * size}\r\n", b"x" * 100 * size),
        "JSON": ("", f"Content-Length: {size}\r\n", b"[" * size),
    }
    return {
        kind: f"GET {path}{query} HTTP/1.1\r\nHost: localhost\r\n{headers}"
        "Connection: close\r\n\r\n".encode()
        + body
        for kind, (query, headers, body) in kinds.items()
    }


async def http_rows(node: KafkaNode) -> list[Row]:
    site, routes = await http_site(node)
    await site.start()

    async def ask(data: bytes) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        with contextlib.suppress(ConnectionError, TimeoutError):
            writer.write(data)
            async with asyncio.timeout(0.5):  # events do not end
                await reader.read()
        writer.transport.abort()

    found: dict[str, list[Cost]] = {}
    for size in SIZES:
        for path in routes:
            for kind, data in http_requests(path, size).items():
                took = await cost(lambda data=data: ask(data))  # type: ignore[misc]
                found.setdefault(f"{path}: {kind}", []).append(took)
    await site.stop()
    return [Row("HTTP", kind, tuple(it)) for kind, it in found.items()]


async def http_site(node: KafkaNode) -> tuple[HttpEndpoints, list[str]]:
    """All that a node serves, and the paths; of a cluster of many streams."""
    known = image(*(stream(f"s-{number}", partition()) for number in range(SIZES[-1])))
    kept = [partition_statistics(TopicPartition(name, 0)) for name in known.streams]

    async def survey() -> None:
        pass

    async def statistics(_: object) -> list[Any]:
        return list(kept)

    async def gauges() -> list[Any]:
        totals = PartitionTotals()
        async for it in cooperatively(kept):
            totals.add(it)
        return [PartitionGauges(totals, failed=0)]

    nobody: Any = SimpleNamespace(partitions=tuple, partition=_nowhere)
    page = Console(
        settings=HttpSection(),
        moment=lambda _: moment(known),
        survey=survey,
        image=lambda: known,
        partitions=nobody,
        control=nobody,
    )
    scrape = PartitionScrape(statistics=statistics, partitions_max=10_000)
    pages = [*page.routes(), *scrape.routes()]
    site = HttpEndpoints(
        "127.0.0.1",
        0,
        registry=node.metrics.registry,
        gauges=gauges,
        readiness=Readiness({}),
        loop_lag_s=lambda: 0.0,
        pages=lambda: pages,
    )
    return site, [*(it.path for it in pages), "/metrics", "/healthz", "/readyz", "/nowhere"]


def _nowhere(tp: TopicPartition) -> Any:
    raise PartitionNotFound(str(tp))


async def _no_states(*_: object, **__: object) -> dict[object, object]:
    return {}


async def _at_once() -> bool:
    return True


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
        *await http_rows(node),
    ]
    await node.listener.stop()
    node.close()
    sizes = " | ".join(f"{it:,} items (ms)" for it in SIZES)
    print(f"| listener | request | {sizes} | held the loop (ms) | exponent |")
    print("|---|---|" + "---:|" * (len(SIZES) + 2))
    shown = [row for row in rows if max(it.seconds for it in row.costs) >= SHOWN_S]
    for row in sorted(shown, key=lambda it: -it.costs[-1].seconds):
        print(row.line())
    print(f"\nAnd {len(rows) - len(shown)} kinds that took less than {SHOWN_S * 1000:g} ms.")


if __name__ == "__main__":
    asyncio.run(main())
