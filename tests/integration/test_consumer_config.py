"""What our pure functions say of a consumer's requests, nats-server says of them, too."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
from nats.aio.msg import Msg

from streamlog.jetstream.consumers.acks import AckKind, read_ack
from streamlog.jetstream.consumers.consumer_config import (
    CONSUMER_EXISTS,
    NATS_KEYS,
    ConsumerConfig,
    decided,
    pause_until,
    read_create,
    unpinned_group,
)
from streamlog.jetstream.consumers.go_duration import MS, ms_of
from streamlog.jetstream.consumers.pull_request import PullRefused, read_pull
from streamlog.jetstream.errors import ApiRefused
from streamlog.jetstream.requests.request_schemas import CONSUMER_CREATE, PAUSE, RESET, UNPIN
from streamlog.jetstream.requests.schema import TIME, read_body, read_loosely
from streamlog.jetstream.verbs.stream_config import (
    config_from_json,
    config_to_json,
    normalised,
)
from streamlog.metadata.stream.stream_config import StreamConfig
from tests.integration.jetstream_pair import JetStreamServer
from tests.integration.raw_publisher import RawPublisher

DURATIONS: Final = (
    "ack_wait", "max_expires", "idle_heartbeat", "inactive_threshold", "priority_timeout",
)  # fmt: skip
TIMES: Final = ("opt_start_time", "pause_until")
INVALID_JSON: Final = 10025
SECOND: Final = 1_000 * MS
START: Final = "2024-02-03T04:05:06.789Z"
LATER: Final = "2099-01-01T00:00:00Z"

Config = dict[str, Any]
Answer = dict[str, Any]


class Server:
    """nats-server with a stream of one message; and what we would answer in its place."""

    def __init__(self, publisher: RawPublisher, stream: StreamConfig) -> None:
        self.client = publisher.client
        self.stream = stream
        self.known: dict[str, ConsumerConfig] = {}
        self._names = (f"c{number}" for number in itertools.count(1))

    def new_name(self) -> str:
        return next(self._names)

    async def request(self, verb: str, body: bytes) -> bytes:
        answer = await self.client.request(f"$JS.API.{verb}", body, timeout=5)
        return answer.data

    async def api(self, verb: str, body: bytes = b"") -> Answer:
        reply: Answer = json.loads(await self.request(verb, body))
        return reply

    async def create(self, verb: str, body: str, name: str) -> tuple[Answer, Answer]:
        """Both answers. In both texts ``{s}`` is the stream and ``{c}`` the consumer."""
        verb = verb.replace("{s}", self.stream.name).replace("{c}", name)
        body = body.replace("{s}", self.stream.name).replace("{c}", name)
        theirs = await self.api(f"CONSUMER.{verb}", body.encode())
        ours = self.our_answer(verb.split("."), body.encode())
        return comparable(theirs), comparable(ours)

    def our_answer(self, tokens: list[str], body: bytes) -> Answer:
        _, name, *filters = (*tokens[tokens.index("CREATE") + 1 :], "")
        try:
            request = read_create(
                read_body(body, CONSUMER_CREATE),
                stream=self.stream,
                subject_consumer=name,
                subject_filter=".".join(filters[:-1]),
                is_durable_form=tokens[0] == "DURABLE",
                is_clustered=False,
            )
            config = decided(self.known.get(request.config.name), request)
        except ApiRefused as refused:
            return {"error": refused.error.json()}
        if config.name:  # otherwise one has to be chosen
            self.known[config.name] = config
        return {"config": json.loads(json.dumps(config.json()))}


@pytest.fixture
async def server(jetstream: JetStreamServer) -> AsyncIterator[Server]:
    name = next(jetstream.stream_names)
    subjects = [f"{name}.>", f"{name}"]
    async with RawPublisher(jetstream.url) as publisher:
        made = Server(publisher, StreamConfig.of(name=name, subjects=subjects))
        body = json.dumps({"name": name, "subjects": subjects}).encode()
        assert "error" not in await made.api(f"STREAM.CREATE.{name}", body)
        await publisher.client.request(name, b"one", timeout=5)
        yield made


def comparable(answer: Answer) -> Answer:
    """Errors, or the configuration: with our precision, without what a server says of itself."""
    if "error" in answer:
        error = dict(answer["error"])
        if error["err_code"] == INVALID_JSON:
            del error["description"]  # Go's words
        return {"error": error}
    config = dict(answer["config"])
    for key in DURATIONS:
        if key in config:
            config[key] = ms_of(config[key]) * MS
    if "backoff" in config:
        config["backoff"] = [ms_of(it) * MS for it in config["backoff"]]
    for key in TIMES:
        if key in config:
            config[key] = TIME.read(config[key])
    metadata = {k: v for k, v in config.pop("metadata", {}).items() if k not in NATS_KEYS}
    return {"config": {**config, "metadata": metadata}}


VALID: Final[list[Config]] = [
    {},
    {"ack_policy": "explicit"},
    {"ack_policy": "all"},
    {"ack_policy": "none"},
    {"ack_policy": "none", "max_ack_pending": 5},
    {"name": "other"},
    {"durable_name": "{c}"},
    {"durable_name": "{c}", "name": "other"},
    {"durable_name": "{c}", "inactive_threshold": SECOND},
    {"inactive_threshold": -1},
    {"inactive_threshold": 1},
    {"description": "d" * 4096},
    {"deliver_policy": "all"},
    {"deliver_policy": "undefined"},
    {"deliver_policy": "last"},
    {"deliver_policy": "new"},
    {"deliver_policy": "by_start_sequence", "opt_start_seq": 7},
    {"deliver_policy": "by_start_sequence", "opt_start_seq": 2**64 - 1},
    {"deliver_policy": "by_start_time", "opt_start_time": START},
    {"deliver_policy": "by_start_time", "opt_start_time": "2024-02-03T04:05:06+02:00"},
    {"deliver_policy": "by_start_time", "opt_start_time": "0001-01-01T00:00:00Z"},
    {"deliver_policy": "by_start_time", "opt_start_time": "9999-12-31T23:59:59Z"},
    {"deliver_policy": "last_per_subject", "filter_subject": "{s}.a"},
    {"deliver_policy": "last_per_subject", "filter_subjects": ["{s}.a", "{s}.b"]},
    {"ack_policy": "explicit", "ack_wait": 5 * SECOND},
    {"ack_policy": "explicit", "ack_wait": 1},
    {"ack_policy": "none", "ack_wait": 5 * SECOND},
    {"max_deliver": 3},
    {"max_deliver": 0},
    {"max_deliver": -7},
    {"ack_policy": "explicit", "backoff": [SECOND, 2 * SECOND], "max_deliver": 2},
    {"ack_policy": "explicit", "backoff": [SECOND, 2 * SECOND], "ack_wait": 7},
    {"ack_policy": "none", "backoff": [SECOND]},
    {"ack_policy": "explicit", "backoff": [0, 5]},
    {"backoff": []},
    {"backoff": [None, SECOND]},
    {"filter_subject": "{s}.a"},
    {"filter_subject": "{s}.>"},
    {"filter_subject": "else.where"},
    {"filter_subject": ">"},
    {"filter_subjects": ["{s}.a", "{s}.b"]},
    {"filter_subjects": ["{s}.a.*", "{s}.*.b"]},
    {"filter_subjects": ["{s}.*", "{s}.*.>"]},
    {"filter_subjects": ["{s}.a"]},
    {"replay_policy": "original"},
    {"replay_policy": "instant"},
    {"sample_freq": "100%"},
    {"sample_freq": "5"},
    {"sample_freq": "+5"},
    {"sample_freq": "-0"},
    {"sample_freq": "500%"},
    {"max_waiting": 7},
    {"max_waiting": -7},
    {"ack_policy": "explicit", "max_ack_pending": -1},
    {"ack_policy": "explicit", "max_ack_pending": -5},
    {"ack_policy": "explicit", "max_ack_pending": 50},
    {"headers_only": True},
    {"max_batch": 10, "max_expires": SECOND, "max_bytes": 1000},
    {"max_batch": -10, "max_expires": -SECOND, "max_bytes": -1000},
    {"max_expires": MS},
    {"idle_heartbeat": -SECOND},
    {"priority_timeout": -SECOND},
    {"deliver_group": "group"},
    {"deliver_subject": "push.{c}"},
    {"deliver_subject": "push.{c}", "deliver_group": "group"},
    {"deliver_subject": "push.{c}", "idle_heartbeat": 100 * MS},
    {"deliver_subject": "push.{c}", "idle_heartbeat": SECOND, "flow_control": True},
    {"deliver_subject": "push.{c}", "rate_limit_bps": 1000},
    {"deliver_subject": "push.{c}", "max_waiting": -1},
    {"deliver_subject": "push.{c}", "ack_policy": "explicit", "max_ack_pending": 5},
    {"deliver_subject": "push.{c}", "max_ack_pending": -5},
    {"deliver_subject": "push.{c}", "max_batch": 5, "max_expires": 1},
    {"deliver_subject": "push.{c}", "ack_policy": "flow_control"},
    {"deliver_subject": "push.{c}", "ack_policy": "flow_control", "idle_heartbeat": 7 * SECOND},
    {"num_replicas": 1},
    {"num_replicas": 0},
    {"mem_storage": True},
    {"metadata": {"a": "b", "c": ""}},
    {"metadata": {"_nats.ver": "x", "_nats.level": "7", "_nats.req.level": "9", "a": "b"}},
    {"metadata": {"a": "b" * (128 * 1024 - 17)}},
    {"pause_until": LATER},
    {"pause_until": "2001-01-01T00:00:00Z"},
    {"pause_until": "0001-01-01T00:00:00Z"},
    {"priority_policy": "none"},
    {"priority_policy": "overflow", "priority_groups": ["a"]},
    {"priority_policy": "overflow", "priority_groups": ["a", "a", "b/_=-9"]},
    {"priority_policy": "pinned_client", "priority_groups": ["a"]},
    {"priority_policy": "pinned_client", "priority_groups": ["a"], "priority_timeout": SECOND},
    {"priority_policy": "prioritized", "priority_groups": ["a"], "priority_timeout": SECOND},
    {"priority_groups": []},
    {"Deliver_Policy": "new", "ACK_POLICY": "explicit"},
    {"description": None, "backoff": None, "opt_start_time": None, "metadata": None},
]
INVALID: Final[list[Config]] = [
    {"description": "d" * 4097},
    {"durable_name": "other"},
    {"durable_name": "a/b"},
    {"num_replicas": 3},
    {"num_replicas": -1},
    {"backoff": [SECOND, -1]},
    {"ack_wait": -1},
    {"ack_policy": "explicit", "ack_wait": -1},
    {"ack_policy": "explicit", "backoff": [1, 2, 3], "max_deliver": 2},
    {"ack_policy": "flow_control"},
    {"ack_policy": "flow_control", "deliver_subject": "p", "max_ack_pending": -1},
    {"ack_policy": "flow_control", "deliver_subject": "p", "ack_wait": 5},
    {"ack_policy": "flow_control", "deliver_subject": "p", "backoff": [5]},
    {"ack_policy": "flow_control", "deliver_subject": "p", "max_deliver": 5},
    {"deliver_subject": "a.*"},
    {"deliver_subject": ">"},
    {"deliver_subject": "a..b"},
    {"deliver_subject": "a b"},
    {"deliver_subject": "a.>.b"},
    {"deliver_subject": "{s}"},
    {"deliver_subject": "{s}.a"},
    {"deliver_subject": "p", "max_waiting": 5},
    {"deliver_subject": "p", "max_ack_pending": 5},
    {"deliver_subject": "p", "idle_heartbeat": 100 * MS - 1},
    {"deliver_subject": "p", "flow_control": True},
    {"rate_limit_bps": 5},
    {"idle_heartbeat": SECOND},
    {"flow_control": True},
    {"max_expires": MS - 1},
    {"direct": True},
    {"direct": True, "deliver_subject": "p", "durable_name": "{c}"},
    {"filter_subject": "a", "filter_subjects": ["b"]},
    {"filter_subject": "a..b"},
    {"filter_subject": "a b"},
    {"filter_subject": "a.>.b"},
    {"filter_subjects": ["a", ""]},
    {"filter_subjects": [None]},
    {"filter_subjects": ["a", "b..c"]},
    {"filter_subjects": ["a", "a"]},
    {"filter_subjects": ["a.*", "a.b"]},
    {"filter_subjects": ["a.b", "a.>"]},
    {"filter_subjects": ["a.*", "a.>"]},
    {"filter_subjects": [">", "a.>"]},
    {"deliver_policy": "all", "opt_start_seq": 1},
    {"deliver_policy": "all", "opt_start_time": START},
    {"deliver_policy": "undefined", "opt_start_seq": 1},
    {"deliver_policy": "last", "opt_start_seq": 1},
    {"deliver_policy": "last", "opt_start_time": START},
    {"deliver_policy": "last_per_subject"},
    {"deliver_policy": "last_per_subject", "filter_subject": "a", "opt_start_seq": 1},
    {"deliver_policy": "last_per_subject", "filter_subject": "a", "opt_start_time": START},
    {"deliver_policy": "new", "opt_start_seq": 1},
    {"deliver_policy": "new", "opt_start_time": START},
    {"deliver_policy": "by_start_sequence"},
    {"deliver_policy": "by_start_sequence", "opt_start_seq": 1, "opt_start_time": START},
    {"deliver_policy": "by_start_time"},
    {"deliver_policy": "by_start_time", "opt_start_seq": 1, "opt_start_time": START},
    {"sample_freq": "often"},
    {"sample_freq": 'a"b\\'},
    {"sample_freq": "%"},
    {"sample_freq": "5%%"},
    {"sample_freq": " 5"},
    {"sample_freq": "-5"},
    {"sample_freq": "99999999999999999999"},
    {"metadata": {"a": "b" * (128 * 1024 - 16)}},
    {"metadata": {"a": "b" * (128 * 1024)}},
    {"priority_policy": "overflow"},
    {"priority_policy": "overflow", "priority_groups": []},
    {"priority_policy": "overflow", "priority_groups": ["a"], "deliver_subject": "p"},
    {"priority_policy": "overflow", "priority_groups": [""]},
    {"priority_policy": "overflow", "priority_groups": ["a b"]},
    {"priority_policy": "overflow", "priority_groups": ["a" * 17]},
    {"priority_policy": "overflow", "priority_groups": ["a b", ""]},
    {"priority_policy": "overflow", "priority_groups": ["", "a b"]},
    {"priority_groups": ["a"]},
    {"priority_timeout": SECOND},
    {"deliver_policy": "sometimes"},
    {"deliver_policy": None},
    {"deliver_policy": 5},
    {"ack_policy": "maybe"},
    {"ack_policy": None},
    {"replay_policy": ""},
    {"priority_policy": ""},
    {"priority_policy": None},
    {"ack_wait": "5s"},
    {"ack_wait": 1.5},
    {"ack_wait": 2**63},
    {"opt_start_seq": -1},
    {"opt_start_time": "yesterday"},
    {"max_deliver": True},
    {"backoff": 5},
    {"backoff": ["5s"]},
    {"filter_subjects": "a"},
    {"filter_subjects": [5]},
    {"metadata": {"a": 5}},
    {"metadata": []},
    {"headers_only": 1},
]
PEDANTIC: Final[list[Config]] = [
    {},
    {"max_deliver": -1},
    {"max_deliver": -2},
    {"max_deliver": 0},
    {"max_waiting": -1},
    {"max_ack_pending": -1},
    {"max_ack_pending": -2},
    {"max_batch": -1},
    {"max_expires": -1},
    {"max_bytes": -1},
    {"idle_heartbeat": -1},
    {"inactive_threshold": -1},
    {"priority_timeout": -1},
    {"ack_policy": "explicit", "backoff": [SECOND]},
    {"ack_policy": "explicit", "backoff": [SECOND], "ack_wait": SECOND},
    {"ack_policy": "flow_control", "deliver_subject": "p"},
    {"ack_policy": "flow_control", "deliver_subject": "p", "flow_control": True},
    {
        "ack_policy": "flow_control", "deliver_subject": "p", "flow_control": True,
        "idle_heartbeat": SECOND,
    },
]  # fmt: skip
PLAIN: Final = {"stream_name": "{s}", "config": {"ack_policy": "explicit"}}


def _with(**config: Any) -> Config:
    return {"stream_name": "{s}", "config": config}


SUBJECTS: Final[list[tuple[str, Any]]] = [
    ("CREATE.{s}", PLAIN),
    ("CREATE.{s}", _with(name="{c}")),
    ("CREATE.{s}", _with(name="a.b")),
    ("CREATE.{s}", _with(name="a b")),
    ("CREATE.{s}", _with(name="a/b")),
    ("CREATE.{s}", _with(name="a\\b")),
    ("CREATE.{s}", _with(durable_name="{c}")),
    ("CREATE.{s}.{c}", PLAIN),
    ("CREATE.{s}.{c}", _with(name="a.b")),
    ("CREATE.{s}.{c}", _with(durable_name="a.b")),
    ("CREATE.{s}.a/b", PLAIN),
    ("CREATE.{s}.a\\b", PLAIN),
    ("CREATE.{s}.a%b", PLAIN),
    ("CREATE.{s}.größe", PLAIN),
    ("CREATE.{s}.{c}.a", PLAIN),
    ("CREATE.{s}.{c}.a", _with(filter_subject="a")),
    ("CREATE.{s}.{c}.a.*.>", _with(filter_subject="a.*.>")),
    ("CREATE.{s}.{c}.a", _with(filter_subject="b")),
    ("CREATE.{s}.{c}.a", _with(filter_subjects=["a"])),
    ("CREATE.{s}.{c}.a", _with(filter_subject="a", filter_subjects=["a"])),
    ("CREATE.{s}.{c}.>", _with(filter_subject=">")),
    ("DURABLE.CREATE.{s}.{c}", _with(durable_name="{c}")),
    ("DURABLE.CREATE.{s}.{c}", _with(durable_name="{c}", name="other")),
    ("DURABLE.CREATE.{s}.{c}", _with(durable_name="other")),
    ("DURABLE.CREATE.{s}.{c}", _with(name="{c}")),
    ("DURABLE.CREATE.{s}.a/b", _with(durable_name="a/b")),
    ("DURABLE.CREATE.{s}." + "n" * 256, _with(durable_name="n" * 256)),
    ("CREATE.{s}." + "n" * 256, _with(durable_name="n" * 256)),
    ("CREATE.{s}.{c}", {"config": {}}),
    ("CREATE.{s}.{c}", {"stream_name": "other", "config": {}}),
    ("CREATE.{s}.{c}", {"stream_name": "{s}"}),
    ("CREATE.{s}.{c}", {"stream_name": "{s}", "config": None}),
    ("CREATE.{s}.{c}", {"stream_name": "{s}", "config": []}),
    ("CREATE.{s}.{c}", {**PLAIN, "action": "create"}),
    ("CREATE.{s}.{c}", {**PLAIN, "action": "update"}),
    ("CREATE.{s}.{c}", {**PLAIN, "action": ""}),
    ("CREATE.{s}.{c}", {**PLAIN, "action": "destroy"}),
    ("CREATE.{s}.{c}", {**PLAIN, "action": None}),
    ("CREATE.{s}.{c}", {**PLAIN, "pedantic": "very"}),
    ("CREATE.{s}.{c}", {}),
    ("CREATE.{s}.{c}", []),
    ("CREATE.{s}.{c}", None),
    ("CREATE.{s}.{c}", "text"),
]
LAWFUL: Final[list[tuple[Config, Config]]] = [
    ({}, {"description": "d"}),
    ({"ack_policy": "explicit"}, {"ack_policy": "explicit", "ack_wait": SECOND}),
    ({"max_deliver": 2}, {"max_deliver": 3}),
    ({"ack_policy": "explicit"}, {"ack_policy": "explicit", "backoff": [SECOND, 2 * SECOND]}),
    ({"filter_subject": "a"}, {"filter_subjects": ["b", "c"]}),
    ({"filter_subject": "a"}, {}),
    ({"sample_freq": "5"}, {"sample_freq": "6%"}),
    ({"ack_policy": "explicit"}, {"ack_policy": "explicit", "max_ack_pending": 6}),
    ({}, {"headers_only": True}),
    ({}, {"max_batch": 5, "max_expires": SECOND, "max_bytes": 7}),
    ({"deliver_subject": "p.{c}"}, {"deliver_subject": "q.{c}"}),
    ({"deliver_subject": "p.{c}"}, {"deliver_subject": "p.{c}", "deliver_group": "g"}),
    ({"deliver_subject": "p.{c}"}, {"deliver_subject": "p.{c}", "rate_limit_bps": 9}),
    ({"inactive_threshold": SECOND}, {"inactive_threshold": 2 * SECOND}),
    ({"inactive_threshold": SECOND}, {}),
    ({"durable_name": "{c}"}, {}),
    ({}, {"durable_name": "{c}"}),
    ({"metadata": {"a": "b"}}, {"metadata": {"a": "c"}}),
    ({"pause_until": LATER}, {}),
    ({"pause_until": LATER}, {"pause_until": "2100-01-01T00:00:00Z", "description": "d"}),
    ({}, {"pause_until": LATER}),
    ({}, {"priority_policy": "overflow", "priority_groups": ["a"]}),
    ({"num_replicas": 1}, {"num_replicas": 0}),
]
LASTING: Final[list[tuple[Config, Config]]] = [
    ({}, {"deliver_policy": "new"}),
    ({}, {"mem_storage": True}),
    (
        {"deliver_policy": "by_start_sequence", "opt_start_seq": 1},
        {"deliver_policy": "by_start_sequence", "opt_start_seq": 2},
    ),
    (
        {"deliver_policy": "by_start_time", "opt_start_time": START},
        {"deliver_policy": "by_start_time", "opt_start_time": LATER},
    ),
    ({}, {"ack_policy": "explicit"}),
    ({}, {"replay_policy": "original"}),
    ({"deliver_subject": "p.{c}"}, {"deliver_subject": "p.{c}", "idle_heartbeat": SECOND}),
    (
        {"deliver_subject": "p.{c}", "idle_heartbeat": SECOND},
        {"deliver_subject": "p.{c}", "idle_heartbeat": SECOND, "flow_control": True},
    ),
    ({}, {"deliver_subject": "p.{c}"}),
    ({"deliver_subject": "p.{c}"}, {}),
    ({}, {"max_waiting": 5}),
    (
        {"ack_policy": "explicit"},
        {"ack_policy": "explicit", "backoff": [1, 2, 3], "max_deliver": 2},
    ),
    ({"ack_policy": "explicit"}, {"ack_policy": "all", "mem_storage": True}),
]


async def _check_all(server: Server, requests: list[tuple[str, Any]]) -> None:
    different = []
    for verb, body in requests:
        theirs, ours = await server.create(verb, json.dumps(body), server.new_name())
        if theirs != ours:
            different.append((verb, body, theirs, ours))
    assert not different, "\n".join(map(_short, different))


def _short(found: Any) -> str:
    return "  ".join(str(it) if len(str(it)) < 700 else str(it)[:300] for it in found)


async def test_a_configuration_is_taken_alike(server: Server) -> None:
    await _check_all(server, [("CREATE.{s}.{c}", _with(**it)) for it in VALID])
    assert len(server.known) == len(VALID)


async def test_a_configuration_is_refused_alike(server: Server) -> None:
    await _check_all(server, [("CREATE.{s}.{c}", _with(**it)) for it in INVALID])
    assert not server.known


async def test_a_pedantic_request_is_taken_alike(server: Server) -> None:
    requests = [("CREATE.{s}.{c}", {**_with(**it), "pedantic": True}) for it in PEDANTIC]
    await _check_all(server, requests)


STREAM_LIMITS: Final[list[Config]] = [
    {"max_ack_pending": 5, "inactive_threshold": 10 * SECOND},
    {"max_ack_pending": 5_000},
    {"inactive_threshold": 1_500 * MS},
    {"max_ack_pending": -1},
]
BESIDE_LIMITS: Final[list[Config]] = [
    {**base, **asked}
    for base in (
        {"ack_policy": "explicit"},
        {"ack_policy": "all", "durable_name": "{c}"},
        {"ack_policy": "none"},
        {"ack_policy": "none", "deliver_subject": "x"},
    )
    for asked in (
        {},
        {"max_ack_pending": 5},
        {"max_ack_pending": 6},
        {"max_ack_pending": 6_000},
        {"max_ack_pending": -1},
        {"inactive_threshold": SECOND},
        {"inactive_threshold": 11 * SECOND},
        {"inactive_threshold": -1},
        {"inactive_threshold": 11 * SECOND, "max_ack_pending": 6},
    )
]


@pytest.mark.parametrize("limits", STREAM_LIMITS)
async def test_limits_of_a_stream_hold_alike(server: Server, limits: Config) -> None:
    """For what is lawful, unlawful or pedantic without them, too: of several mistakes the same is told."""
    stream = server.stream
    body = {"name": stream.name, "subjects": stream.subjects, "consumer_limits": limits}
    told = await server.api(f"STREAM.UPDATE.{stream.name}", json.dumps(body).encode())
    assert told["config"]["consumer_limits"] == limits
    server.stream = config_from_json(normalised({**body, "subjects": list(stream.subjects)}))
    assert config_to_json(server.stream)["consumer_limits"] == limits
    for is_pedantic in (False, True):
        more = {"pedantic": True} if is_pedantic else {}
        cases = VALID + INVALID + PEDANTIC + BESIDE_LIMITS
        await _check_all(server, [("CREATE.{s}.{c}", {**_with(**it), **more}) for it in cases])


async def test_a_request_is_compared_with_its_subject_alike(server: Server) -> None:
    await _check_all(server, SUBJECTS)


@pytest.mark.parametrize("action", ["", "create", "update"])
async def test_a_consumer_is_changed_alike(server: Server, action: str) -> None:
    different = []
    for first, second in LAWFUL + LASTING:
        theirs, ours = await _create_twice(server, first, second, action)
        if theirs != ours and not _is_known(first, second, theirs, ours):
            different.append((first, second, theirs, ours))
    assert not different, "\n".join(map(_short, different))


@pytest.mark.parametrize("action", ["", "create", "update"])
@pytest.mark.parametrize("durable", [{}, {"durable_name": "{c}"}])
async def test_a_create_is_repeated_alike(server: Server, action: str, durable: Config) -> None:
    different = []
    for config in ({**it, **durable} for it in VALID):
        theirs, ours = await _create_twice(server, config, config, action)
        if theirs != ours and not _is_known(config, config, theirs, ours):
            different.append((config, theirs, ours))
    assert not different, "\n".join(map(_short, different))


async def _create_twice(
    server: Server, first: Config, second: Config, action: str
) -> tuple[Answer, Answer]:
    name = server.new_name()
    theirs, ours = await server.create("CREATE.{s}.{c}", json.dumps(_with(**first)), name)
    assert theirs == ours
    body = json.dumps({**_with(**second), "action": action})
    return await server.create("CREATE.{s}.{c}", body, name)


def _is_known(first: Config, second: Config, theirs: Answer, ours: Answer) -> bool:
    """Where we are kinder: nats-server finds a difference between what a repeated request leaves out, or says with
    an empty list, and what it filled in itself; and a consumer that becomes durable it deletes still when it is
    not used.
    """
    their_config, our_config = theirs.get("config", {}), ours.get("config", {})
    is_short = not second.get("durable_name") and second.get("inactive_threshold", 0) <= 0
    if theirs == {"error": CONSUMER_EXISTS.json()} and (is_short or [] in second.values()):
        return "config" in ours
    if second.get("durable_name") and not first.get("durable_name"):
        return bool({**our_config, "inactive_threshold": 5 * SECOND} == their_config)
    return False


async def test_a_deliver_subject_with_subscribers_is_kept_alike(server: Server) -> None:
    subscription = await server.client.subscribe("bound.p")
    await server.client.flush()
    first, second = _with(deliver_subject="bound.p"), _with(deliver_subject="bound.q")
    await server.create("CREATE.{s}.{c}", json.dumps(first), "bound")
    theirs = await server.api(
        f"CONSUMER.CREATE.{server.stream.name}.bound",
        json.dumps(second).replace("{s}", server.stream.name).encode(),
    )
    ours = read_create(
        {"stream_name": server.stream.name, "config": second["config"]},
        stream=server.stream,
        subject_consumer="bound",
    )
    with pytest.raises(ApiRefused) as refused:
        decided(server.known["bound"], ours, is_bound=True)
    assert refused.value.error.json() == theirs["error"]
    await subscription.unsubscribe()


async def test_a_consumer_of_a_mirror_gets_a_name_of_its_own_alike(server: Server) -> None:
    config = {"deliver_subject": "p.{c}", "direct": True, "sourcing": True, "max_deliver": 1}
    theirs, ours = await server.create("CREATE.{s}.{c}", json.dumps(_with(**config)), "mirror")
    assert theirs["config"].pop("name").startswith("mirror-")
    assert theirs == ours


# Pull requests

LIMITED: Final = {"max_batch": 10, "max_expires": 90 * SECOND, "max_bytes": 1000}
OVERFLOW: Final = {"priority_policy": "overflow", "priority_groups": ["a", "b"]}
PINNED: Final = {"priority_policy": "pinned_client", "priority_groups": ["a"]}
PRIORITIZED: Final = {"priority_policy": "prioritized", "priority_groups": ["a"]}
PUSH: Final = {"deliver_subject": "pushed.{c}"}
PULLS: Final[list[tuple[Config, bytes]]] = [
    *(
        (config, body)
        for config in ({}, LIMITED)
        for body in (
            b"", b" ", b"1", b"5", b" 7\n", b"+7", b"11", b"0", b"-5", b"1_000", b"0x10", b"1.5",
            b"nonsense", b"null", b"[]", b'"5"', b"\xff", b"99999999999999999999",
            b"{}", b"{ }", b'{"batch": 1}', b'{"batch": 10}', b'{"batch": 11}', b'{"batch": 0}',
            b'{"batch": -1}', b'{"batch": null}', b'{"BATCH": 5}', b'{"batch": 5, "colour": "red"}',
            b'{"batch": "5"}', b'{"batch": 1.5}', b'{"batch": 9223372036854775808}', b'{"batch"',
            b'{"batch": 5} more', b"{bad}", b'{"no_wait": "yes"}', b'{"no_wait": true}',
            b'{"expires": "5s"}', b'{"expires": 90000000000}', b'{"expires": 91000000000}',
            b'{"max_bytes": 1000}', b'{"max_bytes": 1001}', b'{"max_bytes": -5}',
            b'{"batch": 11, "max_bytes": 1001}',
            b'{"idle_heartbeat": 1}', b'{"idle_heartbeat": -1}',
            b'{"idle_heartbeat": 30000000001, "expires": 60000000000}',
            b'{"idle_heartbeat": 30000000000, "expires": 60000000000}',
            b'{"batch": 11, "idle_heartbeat": 1}',
            b'{"priority": 9}', b'{"priority": 10}', b'{"priority": -1}', b'{"group": "a"}',
            b'{"min_pending": 1}', b'{"min_ack_pending": 1}', b'{"id": "x"}', b'{"group": 5}',
        )
    ),
    *(
        (config, body)
        for config in (OVERFLOW, PINNED, PRIORITIZED)
        for body in (
            b"", b"5", b"{}", b'{"group": ""}', b'{"group": "a"}', b'{"group": "c"}',
            b'{"group": "a", "id": ""}', b'{"group": "a", "priority": 5}',
            b'{"group": "a", "priority": 10}', b'{"group": "a", "min_pending": 0}',
        )
    ),
    (OVERFLOW, b'{"group": "a", "min_pending": 1}'),
    (OVERFLOW, b'{"group": "a", "min_pending": -1}'),
    (OVERFLOW, b'{"group": "b", "id": "x"}'),
    (PINNED, b'{"group": "a", "min_pending": 1}'),
    (PRIORITIZED, b'{"group": "a", "min_ack_pending": 1}'),
    (PRIORITIZED, b'{"group": "a", "id": "x"}'),
    *(({"max_expires": it * MS}, b'{"expires": 9000000000000}') for it in (1, 999, 1_500, 3_600_050)),
]  # fmt: skip


async def _pull(server: Server, name: str, body: bytes) -> Msg:
    """The first answer. Its inbox stays: nats-server ends requests of which no client hears."""
    inbox = server.client.new_inbox()
    subscription = await server.client.subscribe(inbox)
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{server.stream.name}.{name}"
    await server.client.publish(subject, body, reply=inbox)
    return await subscription.next_msg(timeout=5)


def _status(message: Msg) -> tuple[int, str] | None:
    """None: a message of the stream."""
    headers = message.headers or {}
    if "Status" not in headers:
        return None
    return int(headers["Status"]), headers.get("Description", "")


def _our_status(body: bytes, config: ConsumerConfig) -> tuple[int, str] | None:
    try:
        read_pull(body, config)
    except PullRefused as refused:
        return refused.code, refused.description
    return None


def _without_json_words(status: tuple[int, str] | None, body: bytes) -> Any:
    """Why JSON is none, Go says in words of its own."""
    is_about_json = status is not None and ("json" in status[1].lower() or "character" in status[1])
    return (400, "invalid JSON") if is_about_json and body.startswith(b"{") else status


async def test_a_pull_request_is_taken_alike(server: Server) -> None:
    different = list[Any]()
    for config, body in PULLS:
        name = server.new_name()
        await server.create("CREATE.{s}.{c}", json.dumps(_with(**config)), name)
        answer = await _pull(server, name, body)
        ours = _our_status(body, server.known[name])
        theirs = _status(answer)
        if _without_json_words(ours, body) != _without_json_words(theirs, body):
            different.append((config, body, theirs, ours))
        elif theirs is None and not (request := read_pull(body, server.known[name])).no_wait:
            info = await server.api(f"CONSUMER.INFO.{server.stream.name}.{name}")
            if info["num_waiting"] != (request.batch > 1):
                different.append((config, body, info["num_waiting"], request))
    assert not different, "\n".join(map(_short, different))


async def test_a_pull_request_that_is_over_already_ends_alike(server: Server) -> None:
    await server.create("CREATE.{s}.{c}", json.dumps(_with(filter_subject="none")), "over")
    body = b'{"expires": -5, "batch": 3}'
    assert _status(await _pull(server, "over", body)) == (408, "Request Timeout")
    assert read_pull(body, server.known["over"]).expires_ms == 1


async def test_a_push_consumer_refuses_pull_requests_alike(server: Server) -> None:
    await server.create("CREATE.{s}.{c}", json.dumps(_with(**PUSH)), "push")
    theirs = _status(await _pull(server, "push", b"1"))
    assert theirs == _our_status(b"1", server.known["push"])


# Acknowledgements

HOUR: Final = 3_600_000
ACKS: Final = [
    b"", b"+ACK", b"+OK", b"+ACK ", b"+ack", b"ACK", b"+WPI", b"+WPI ", b"+NXT", b"+NXT 1",
    b'+NXT {"no_wait": true}', b"+NXTnonsense", b"+TERM", b"+TERM why", b"+TERMwhy", b"+TER",
    b"-NAK", b"-NAK ", b"-NAKED", b"-NAK 1h", b"-NAK  1h ", b"-NAK1h", b"-NAK 0", b"-NAK +0",
    b"-NAK -1h", b"-NAK +1h", b"-NAK 1h30m", b"-NAK 1.5h", b"-NAK .5h", b"-NAK 1.h", b"-NAK .h",
    b"-NAK 1", b"-NAK 1d", b"-NAK 3600s", b"-NAK 3600000ms", b"-NAK 1H", b"-NAK 99999999999h",
    b"-NAK 3600000000us", b"-NAK 3600000000\xc2\xb5s", b"-NAK 3600000000\xce\xbcs",
    b'-NAK {"delay": 3600000000000}', b'-NAK {"delay": 0}', b'-NAK {"delay": -5}',
    b'-NAK {"delay": "1h"}', b'-NAK {"delay": 1.5}', b'-NAK {"delay": null}', b"-NAK {",
    b'-NAK {"DELAY": 3600000000000, "colour": "red"}', b"-NAK {}", b"-NAK [1]", b"\xff\x00",
]  # fmt: skip


async def test_an_acknowledgement_is_taken_alike(server: Server) -> None:
    different = []
    for payload in ACKS:
        name = server.new_name()
        await server.create("CREATE.{s}.{c}", json.dumps(_with(ack_policy="explicit")), name)
        message = await _pull(server, name, b"1")
        ack = read_ack(payload)
        if ack is None or ack.kind is AckKind.PROGRESS:
            ours = "pending"
        elif ack.kind is AckKind.NAK:
            ours = "pending" if ack.delay_ms else "redelivered"
            assert not ack.delay_ms or HOUR // 2 <= ack.delay_ms <= 2 * HOUR
        else:
            ours = "done"
        wait_ms = 5_000 if ours == "redelivered" else 100
        theirs = await _becomes(server, name, message, payload, wait_ms)
        if theirs != ours:
            different.append((payload, theirs, ours))
    assert not different, "\n".join(map(_short, different))


async def _becomes(server: Server, name: str, message: Msg, payload: bytes, wait_ms: int) -> str:
    """What becomes of the message, if it is redelivered in that time. nats-server delays each one a little whose
    client names a delay.
    """
    inbox = server.client.new_inbox()
    subscription = await server.client.subscribe(inbox)
    await server.client.publish(message.reply, payload, reply=inbox)
    if not payload.startswith(b"+NXT"):  # that waits for a message
        await subscription.next_msg(timeout=5)
    await subscription.unsubscribe()
    async with asyncio.timeout(5):
        while True:
            again = await _pull(server, name, json.dumps({"expires": wait_ms * MS}).encode())
            info = await server.api(f"CONSUMER.INFO.{server.stream.name}.{name}")
            if not payload.startswith(b"+NXT") or not info["num_ack_pending"]:
                break
    if _status(again) is None:
        return "redelivered"
    return "pending" if info["num_ack_pending"] else "done"


# PAUSE, UNPIN, RESET


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{}", b"null", b"nonsense", b"[]", b'{"pause_until": null}', b'{"pause_until": 5}',
        b'{"pause_until": "2099-01-01T00:00:00Z"}', b'{"pause_until": "2099-01-01T00:00:00+02:00"}',
        b'{"pause_until": "0001-01-01T00:00:00Z"}', b'{"pause_until": "2001-01-01T00:00:00Z"}',
        b'{"pause_until": "tomorrow"}', b'{"colour": "red"}',
    ],
)  # fmt: skip
async def test_a_pause_is_taken_alike(server: Server, body: bytes) -> None:
    await server.create("CREATE.{s}.{c}", json.dumps(_with()), "paused")
    theirs = await server.api(f"CONSUMER.PAUSE.{server.stream.name}.paused", body)
    is_json = body.startswith((b"{", b"["))
    try:
        ours = pause_until(read_body(body, PAUSE) if is_json else {})
    except ApiRefused as refused:
        assert refused.error.err_code == theirs["error"]["err_code"]
        return
    info = await server.api(f"CONSUMER.INFO.{server.stream.name}.paused")
    told = info["config"].get("pause_until")
    assert ours == (None if told is None else TIME.read(told))


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{}", b"nonsense", b"[]", b"null", b'{"group": ""}', b'{"group": 5}', b'{"group": "a"}',
        b'{"group": "a b"}', b'{"group": "aaaaaaaaaaaaaaaaa"}', b'{"group": "a", "colour": "red"}',
    ],
)  # fmt: skip
async def test_an_unpin_is_taken_alike(server: Server, body: bytes) -> None:
    await server.create("CREATE.{s}.{c}", json.dumps(_with(**PINNED)), "pinned")
    theirs = await server.api(f"CONSUMER.UNPIN.{server.stream.name}.pinned", body)
    try:
        group = unpinned_group(read_loosely(body, UNPIN))
    except ApiRefused as refused:
        assert comparable({"error": refused.error.json()}) == comparable(theirs)
        return
    assert "error" not in theirs
    assert group == "a"


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b"{}", b"null", b"5", b"[]", b'{"seq": 0}', b'{"seq": 5}', b'{"seq": -5}',
        b'{"seq": "5"}', b'{"seq": null}', b'{"seq": 5, "colour": "red"}', b"{",
    ],
)  # fmt: skip
async def test_a_reset_is_taken_alike(server: Server, body: bytes) -> None:
    await server.create("CREATE.{s}.{c}", json.dumps(_with()), "reset")
    theirs = await server.api(f"CONSUMER.RESET.{server.stream.name}.reset", body)
    try:
        sequence = read_loosely(body, RESET).get("seq", 0)
    except ApiRefused as refused:
        assert refused.error.err_code == theirs["error"]["err_code"]
        return
    assert theirs["reset_seq"] == (sequence or 1)
