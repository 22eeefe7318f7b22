"""Mirrors and sources: of a stream of the cluster, of a real JetStream, of another cluster; and JetStream's of ours.

A mirror has the sequences and messages of its origin, and a stream has each message of its sources once, in order.
"""

import asyncio
import base64
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import nats
import nats.errors
import pytest
from nats.aio.client import Client

from tests.integration.conftest import Read, read_stream
from tests.leaf_hub import Hub
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import NodeProcess, Settings
from tools.nodes.server_process import NatsServer, wait_until

HUB: Final = "$JS.hub.API"
OURS: Final = "$JS.streamlog.API"
SETTLED_S: Final = 40.0

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning")
"""nats-py leaves them behind where a server is killed in the midst of a handshake."""


def hub_in(directory: Path) -> Hub:
    """JetStream with the domain ``hub``: a leafnode does not reach one without a domain."""
    directory.mkdir(parents=True, exist_ok=True)
    hub = Hub(directory)
    config = directory / "hub.conf"
    config.write_text(config.read_text().replace("jetstream: {", "jetstream: { domain: hub,"))
    return hub


def leaf_settings(hub: Hub, domain: str = "streamlog") -> Settings:
    server = f"nats-leaf://127.0.0.1:{hub.leaf_port}"
    nats_section = {"servers": [server], "reconnect_backoff_ms": 50, "domain": domain}
    return {"nats": nats_section, "nats_listen": {}}


class Api:
    """A JetStream API, by a client that reaches it."""

    def __init__(self, client: Client, prefix: str) -> None:
        self.client = client
        self._prefix = prefix

    async def ask(self, verb: str, body: Any = None) -> dict[str, Any]:
        """While leaders change, requests fail."""
        data = b"" if body is None else json.dumps(body).encode()
        async with asyncio.timeout(SETTLED_S):
            while True:
                try:
                    answer = await self.client.request(f"{self._prefix}.{verb}", data, timeout=3)
                except (nats.errors.Error, TimeoutError):
                    await asyncio.sleep(0.1)
                    continue
                reply: dict[str, Any] = json.loads(answer.data)
                if reply.get("error", {}).get("code") != 503:
                    return reply
                await asyncio.sleep(0.1)

    async def refusal(self, verb: str, body: Any = None) -> tuple[int, str]:
        error = (await self.ask(verb, body))["error"]
        return error["err_code"], error["description"]

    async def create(self, name: str, **config: Any) -> dict[str, Any]:
        body = {"name": name, "storage": "file", **config}
        reply = await self.ask(f"STREAM.CREATE.{name}", body)
        assert "error" not in reply, reply
        return reply

    async def info(self, name: str) -> dict[str, Any]:
        return await self.ask(f"STREAM.INFO.{name}")

    async def state(self, name: str) -> dict[str, int]:
        state = (await self.info(name))["state"]
        names = ("messages", "first_seq", "last_seq", "num_deleted")
        return {it: state.get(it, 0) for it in names}

    async def message(self, name: str, sequence: int) -> tuple[str, bytes, bytes, str] | None:
        """Subject, data, headers, and the time in whole milliseconds."""
        reply = await self.ask(f"STREAM.MSG.GET.{name}", {"seq": sequence})
        if "error" in reply:
            return None
        it = reply["message"]
        seconds, _, digits = it["time"].rstrip("Z").partition(".")
        data, headers = (base64.b64decode(it.get(key, "")) for key in ("data", "hdrs"))
        return it["subject"], data, headers, f"{seconds}.{digits.ljust(3, '0')[:3]}"

    async def publish(self, subject: str, *payloads: bytes) -> None:
        """Each once, whatever fails meanwhile."""
        for payload in payloads:
            headers = {"Nats-Msg-Id": uuid.uuid4().hex}
            async with asyncio.timeout(SETTLED_S):
                while True:
                    try:
                        answer = await self.client.request(
                            subject, payload, timeout=1, headers=headers
                        )
                    except (nats.errors.Error, TimeoutError):
                        await asyncio.sleep(0.05)
                        continue
                    if "error" not in json.loads(answer.data):
                        break
                    await asyncio.sleep(0.05)


async def until(condition: Callable[[], Any], what: str) -> None:
    """Once it is so, or an answer that is so is given."""
    try:
        async with asyncio.timeout(SETTLED_S):
            while True:
                found = condition()
                if asyncio.iscoroutine(found):
                    found = await found
                if found:
                    return
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(what) from None


async def has_all(api: Api, name: str, last_seq: int) -> None:
    """A mirror has come so far."""

    async def has() -> bool:
        return (await api.state(name))["last_seq"] >= last_seq

    await until(has, f"{name} reaches {last_seq}")


async def has_sourced(api: Api, name: str, messages: int) -> None:
    async def has() -> bool:
        return (await api.state(name))["messages"] >= messages

    await until(has, f"{name} has {messages} messages")


async def are_same(one: Api, origin: str, other: Api, mirror: str) -> None:
    """Sequence by sequence."""
    state = await one.state(origin)
    assert await other.state(mirror) == state
    for sequence in range(state["first_seq"], state["last_seq"] + 1):
        assert await other.message(mirror, sequence) == await one.message(origin, sequence)


def numbers(records: Sequence[Read]) -> list[int]:
    return [int(it.value) for it in records]


@contextlib.asynccontextmanager
async def api_of(url: str, prefix: str, *others: str) -> AsyncIterator[Api]:
    client = await nats.connect(
        [url, *others],
        reconnect_time_wait=0.05,
        max_reconnect_attempts=-1,
        dont_randomize=True,
    )
    try:
        yield Api(client, prefix)
    finally:
        with contextlib.suppress(nats.errors.Error, TimeoutError):
            await client.close()


# One node that is a leafnode of a nats-server with JetStream


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    hub = hub_in(tmp_path_factory.mktemp("hub"))
    hub.start()
    yield hub
    hub.kill()


@pytest.fixture(scope="module")
def node(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    node = NodeProcess(1, tmp_path_factory.mktemp("node"), settings=leaf_settings(hub))
    node.start()
    yield node
    assert "Traceback" not in node.log_text()
    node.kill()


@pytest.fixture
async def ours(node: NodeProcess) -> AsyncIterator[Api]:
    async with api_of(node.port_url, OURS) as api:
        yield api


@pytest.fixture
async def theirs(hub: Hub) -> AsyncIterator[Api]:
    async with api_of(hub.url, "$JS.API") as api:
        yield api


async def filled(api: Api, name: str, count: int = 12) -> None:
    """With deleted messages at its front, its end and in between."""
    await api.create(name, subjects=[f"{name}.>"])
    for number in range(count):
        await api.publish(f"{name}.{number % 4}", b"%d" % number)
    await api.ask(f"STREAM.PURGE.{name}", {"seq": 3})
    for sequence in (5, 8, 9):
        await api.ask(f"STREAM.MSG.DELETE.{name}", {"seq": sequence})


@pytest.mark.parametrize("kind", ["ours", "theirs"])
async def test_mirror_has_the_sequences_times_and_headers_of_its_origin(
    ours: Api, theirs: Api, kind: str
) -> None:
    api, external = {"ours": (ours, None), "theirs": (theirs, {"api": HUB})}[kind]
    origin, mirror = f"o-{kind}", f"m-{kind}"
    await filled(api, origin)
    said = {"name": origin} | ({"external": external} if external else {})
    await ours.create(mirror, mirror=said)
    await has_all(ours, mirror, 12)
    for number in range(12, 20):
        headers = {"Nats-Msg-Id": str(number), "A": "b: c"}
        await api.client.jetstream().publish(f"{origin}.x", b"%d" % number, headers=headers)
    last = (await api.state(origin))["last_seq"]
    await has_all(ours, mirror, last)
    await are_same(api, origin, ours, mirror)
    message = await ours.message(mirror, last)
    assert message is not None
    assert b"Nats-Msg-Id: 19" in message[2]
    told = (await ours.info(mirror))["mirror"]
    assert told["name"] == origin
    assert told["lag"] == 0
    assert 0 <= told["active"] < 5e9
    assert "error" not in told


async def test_mirrors_own_transform_follows_those_of_its_origin(ours: Api, theirs: Api) -> None:
    """As everywhere a subject that does not match stays, and another transform counts for what is mirrored from then
    on.
    """
    found = dict[Api, list[Any]]()
    for api in (ours, theirs):
        await api.create("to", subjects=["to.>"])
        await api.publish("to.a", b"1")
        await api.publish("to.b", b"2")
        first = {"src": "to.*", "dest": "m.{{wildcard(1)}}"}
        second = {"src": "m.a", "dest": "n.a"}
        config = {
            "mirror": {"name": "to", "subject_transforms": [first]},
            "subject_transform": second,
        }
        created = await api.create("to-m", **config)
        assert created["config"]["subject_transform"] == second
        await has_all(api, "to-m", 2)
        changed = {**created["config"], "subject_transform": {"src": "m.>", "dest": "o.>"}}
        await api.ask("STREAM.UPDATE.to-m", changed)
        await api.publish("to.a", b"3")
        await has_all(api, "to-m", 3)
        found[api] = [await api.message("to-m", sequence) for sequence in (1, 2, 3)]
    assert [it[:2] for it in found[ours]] == [it[:2] for it in found[theirs]]
    assert [it[0] for it in found[ours]] == ["n.a", "m.b", "o.a"]


@pytest.mark.parametrize("kind", ["ours", "theirs"])
async def test_sources_bring_each_message_once_and_name_its_origin(
    ours: Api, theirs: Api, node: NodeProcess, kind: str
) -> None:
    api, external = {"ours": (ours, None), "theirs": (theirs, {"api": HUB})}[kind]
    one, two, name = f"one-{kind}", f"two-{kind}", f"s-{kind}"
    for origin in (one, two):
        await api.create(origin, subjects=[f"{origin}.>"])
        await api.publish(f"{origin}.a", *(b"%d" % it for it in range(20)))
        await api.publish(f"{origin}.b", b"100")
    place = {"external": external} if external else {}
    await ours.create(
        name,
        subjects=[f"{name}.>"],
        sources=[
            {"name": one, "filter_subject": f"{one}.a", **place},
            {
                "name": two,
                "opt_start_seq": 11,
                "subject_transforms": [{"src": f"{two}.a", "dest": "made"}],
                **place,
            },
        ],
    )
    await ours.publish(f"{name}.own", b"200")
    await has_sourced(ours, name, 31)
    records = read_stream(node.kafka, name)
    by_subject: dict[str, list[int]] = {}
    for it in records:
        subject = dict(it.headers)["subject"].decode()
        by_subject.setdefault(subject, []).append(int(it.value))
    assert by_subject == {
        f"{one}.a": list(range(20)),
        "made": list(range(10, 20)),
        f"{name}.own": [200],
    }
    tag = f":{HUB}" if external else ""
    headers = [dict(it.headers).get("Nats-Stream-Source", b"").decode() for it in records]
    said = [" ".join(it.split(" ")[:5]) for it in headers]
    assert all(len(it.split(" ")) == 6 for it in headers if it), "the identity of the origin"
    assert f"{one}{tag} 1 {one}.a > {one}.a" in said
    assert f"{two}{tag} 20 {two}.a made {two}.a" in said
    told = (await ours.info(name))["sources"]
    assert [it["name"] for it in told] == [one, two]
    assert [it["lag"] for it in told] == [0, 0]
    (listed,) = [
        it for it in (await ours.ask("STREAM.LIST"))["streams"] if it["config"]["name"] == name
    ]
    assert [it["name"] for it in listed["sources"]] == [one, two]


async def test_jetstream_mirrors_and_sources_ours(ours: Api, theirs: Api) -> None:
    await filled(ours, "for-js")
    external = {"api": OURS, "deliver": ""}
    await theirs.create("js-m", mirror={"name": "for-js", "external": external})
    await theirs.create("js-s", sources=[{"name": "for-js", "external": external}])
    await ours.publish("for-js.late", b"90", b"91")
    last = (await ours.state("for-js"))["last_seq"]
    await has_all(theirs, "js-m", last)
    await are_same(ours, "for-js", theirs, "js-m")
    wanted = (await ours.state("for-js"))["messages"]
    await has_sourced(theirs, "js-s", wanted)
    found = [await theirs.message("js-s", sequence) for sequence in range(1, wanted + 1)]
    assert [int(it[1]) for it in found if it] == [2, 3, 5, 6, 9, 10, 11, 90, 91]


async def test_mirror_is_read_only_and_can_be_promoted(ours: Api, node: NodeProcess) -> None:
    from confluent_kafka import KafkaException, Producer

    await filled(ours, "pro")
    await ours.create("pro-m", mirror={"name": "pro"})
    await has_all(ours, "pro-m", 12)
    refused: list[Any] = []
    producer = Producer({"bootstrap.servers": node.kafka, "message.timeout.ms": 5_000})
    with contextlib.suppress(KafkaException):
        producer.produce("pro-m", b"x", on_delivery=lambda error, _: refused.append(error))
        producer.flush(10)
    assert refused and refused[0] is not None
    with pytest.raises(nats.errors.NoRespondersError):
        await ours.client.request("pro-m", b"x", timeout=2)
    assert (await ours.refusal("STREAM.MSG.DELETE.pro-m", {"seq": 7}))[0] == 10057
    assert (await ours.refusal("STREAM.PURGE.pro-m", {"filter": "pro.1"}))[0] == 10110
    config = (await ours.info("pro-m"))["config"]
    for changed in ({"name": "o-ours"}, {"name": "pro", "filter_subject": "pro.1"}):
        code = (await ours.refusal("STREAM.UPDATE.pro-m", {**config, "mirror": changed}))[0]
        assert code == 10055
    state = await ours.state("pro-m")

    del config["mirror"]
    reply = await ours.ask("STREAM.UPDATE.pro-m", {**config, "subjects": ["promoted"]})
    assert "mirror" not in reply["config"]
    assert "mirror" not in reply
    await ours.publish("pro.1", b"for the origin alone")
    await ours.publish("promoted", b"its own")
    assert (await ours.state("pro-m"))["last_seq"] == state["last_seq"] + 1
    assert (await ours.message("pro-m", state["last_seq"] + 1) or ("",))[0] == "promoted"


async def test_configurations_are_refused_as_jetstream_refuses_them(ours: Api, theirs: Api) -> None:
    o = {"name": "somewhere"}
    c = {**o, "consumer": {"name": "c", "deliver_subject": "d"}}
    for config in (
        {"mirror": {**o, "consumer": {}}},
        {"mirror": {**o, "consumer": {"name": "a.b", "deliver_subject": "d"}}},
        {"mirror": {**o, "consumer": {"name": "c", "deliver_subject": "d.*"}}},
        {"mirror": {**o, "consumer": {"name": "c", "deliver_subject": "d..e"}}},
        {"mirror": {**c, "opt_start_seq": 2}},
        {"mirror": {**c, "opt_start_time": "2026-01-02T03:04:05Z"}},
        {"mirror": {**c, "filter_subject": "a"}},
        {"sources": [{**o, "consumer": {}}]},
        {"sources": [{**o, "consumer": {"name": "c", "deliver_subject": "d.>"}}]},
        {"sources": [{**c, "opt_start_seq": 2}]},
        {"sources": [{**c, "filter_subject": "a"}]},
        {"sources": [c, c]},
        {"sources": [c, {**c, "subject_transforms": [{"src": "a", "dest": "b"}]}]},
        {"mirror": o, "subjects": ["m"]},
        {"mirror": o, "sources": [o]},
        {"mirror": o, "first_seq": 5},
        {"mirror": o, "allow_atomic": True},
        {"mirror": o, "allow_batched": True},
        {"mirror": {"name": ""}},
        {"mirror": {"name": "a.b"}},
        {"mirror": {"name": "refused"}},
        {"mirror": {**o, "filter_subject": "a..b"}},
        {"mirror": {**o, "filter_subject": "a", "subject_transforms": [{"src": "a", "dest": "b"}]}},
        {"mirror": {**o, "subject_transforms": [{"src": "a.>", "dest": ""}, {"src": "a.b", "dest": ""}]}},
        {"mirror": {**o, "external": {"api": "a.*", "deliver": ""}}},
        {"mirror": {**o, "external": {"api": "a", "deliver": "b.>"}}},
        {"sources": [{"name": ""}]},
        {"sources": [{"name": "a.b"}]},
        {"sources": [{"name": "refused"}]},
        {"sources": [o, o]},
        {"sources": [{**o, "filter_subject": "a..b"}]},
        {"sources": [{**o, "filter_subject": "a", "subject_transforms": [{"src": "a", "dest": "b"}]}]},
        {"sources": [{**o, "subject_transforms": [{"src": "a..", "dest": "b"}]}]},
        {"sources": [{**o, "subject_transforms": [{"src": "a.>", "dest": ""}, {"src": "a.b", "dest": ""}]}]},
        {"sources": [o], "mirror_direct": True},
    ):  # fmt: skip
        body = {"name": "refused", "storage": "file", **config}
        answers = [(await api.ask("STREAM.CREATE.refused", body)) for api in (ours, theirs)]
        assert answers[0]["error"] == answers[1]["error"], config


async def test_what_cannot_be_mirrored_is_refused_or_told(ours: Api) -> None:
    for config, words in (
        ({"mirror": {"name": "x"}, "allow_msg_ttl": True}, "allow_ttl"),
        ({"mirror": {"name": "x"}, "discard": "new", "max_msgs": 5}, "discard"),
        ({"mirror": {"name": "x"}, "retention": "workqueue"}, "retention"),
        ({"mirror": {"name": "x"}, "retention": "interest"}, "retention"),
        (
            {
                "mirror": {"name": "x", "external": {"api": HUB}},
                "metadata": {"streamlog.partitions": "2"},
            },
            "one partition",
        ),
        ({"sources": [{"name": "x"}], "metadata": {"streamlog.partitions": "2"}}, "partition_by"),
    ):
        code, said = await ours.refusal("STREAM.CREATE.no", {"name": "no", **config})
        assert code == 10052
        assert words in said
    await ours.create("circle-a", sources=[{"name": "circle-b"}])
    refused = await ours.refusal(
        "STREAM.CREATE.circle-b", {"name": "circle-b", "mirror": {"name": "circle-a"}}
    )
    assert refused == (10052, "detected cycle")
    for external, error in ((None, 10059), ({"api": HUB}, 10059), ({"api": "$JS.none.API"}, 10008)):
        name = f"astray-{error}-{bool(external)}"
        place = {"external": external} if external else {}
        await ours.create(name, mirror={"name": "nowhere", **place})

        async def is_told(name: str = name, error: int = error) -> bool:
            told = (await ours.info(name))["mirror"]
            return bool(told.get("error", {}).get("err_code") == error)

        await until(is_told, f"{name} tells why")
    assert (await ours.info("circle-a"))["sources"][0]["error"]["err_code"] == 10059


async def test_origin_that_begins_too_far_is_told_and_holds_nothing_up(
    ours: Api, theirs: Api
) -> None:
    await theirs.create("far", subjects=["far"], first_seq=2**50)
    await theirs.publish("far", b"1")
    await ours.create("far-m", mirror={"name": "far", "external": {"api": HUB}})

    async def is_told() -> bool:
        error = (await ours.info("far-m"))["mirror"].get("error", {})
        return "sequences are missing" in error.get("description", "")

    await until(is_told, "the mirror tells why")
    assert (await ours.state("far-m"))["messages"] == 0


async def test_origin_that_comes_later_is_mirrored_then(ours: Api, theirs: Api) -> None:
    await ours.create("late-m", mirror={"name": "late-o"})
    await ours.create("late-js", mirror={"name": "late-o", "external": {"api": HUB}})
    for api in (ours, theirs):
        await api.create("late-o", subjects=["late.o"] if api is ours else ["late.js"])
        await api.publish("late.o" if api is ours else "late.js", b"1", b"2")
    await has_all(ours, "late-m", 2)
    await has_all(ours, "late-js", 2)


@pytest.mark.parametrize("kind", ["ours", "theirs"])
async def test_mirror_begins_where_it_is_told(ours: Api, theirs: Api, kind: str) -> None:
    api, external = {"ours": (ours, None), "theirs": (theirs, {"api": HUB})}[kind]
    origin = f"start-{kind}"
    place = {"name": origin} | ({"external": external} if external else {})
    await api.create(origin, subjects=[f"{origin}.>"])
    await api.publish(f"{origin}.a", b"1", b"2", b"3")
    await asyncio.sleep(0.05)  # so that the next one has a later time
    await api.publish(f"{origin}.b", b"4", b"5")
    time = (await api.message(origin, 4) or ("",) * 4)[3] + "Z"
    for name, more, first in (
        ("seq", {"opt_start_seq": 3}, 3),
        ("time", {"opt_start_time": time}, 4),
        ("filter", {"filter_subject": f"{origin}.b"}, 4),
    ):
        mirror = f"{origin}-{name}"
        await ours.create(mirror, mirror={**place, **more})
        await has_all(ours, mirror, 5)
        state = await ours.state(mirror)
        assert (state["first_seq"], state["messages"]) == (first, 6 - first)


async def test_partitions_are_mirrored_one_to_one(ours: Api, node: NodeProcess) -> None:
    spread = {"streamlog.partitions": "3", "streamlog.partition_by": "tokens:2"}
    await ours.create("wide", subjects=["wide.*"], metadata=spread)
    sent = [b"%d" % it for it in range(30)]
    for it in sent:
        await ours.publish(f"wide.{it.decode()}", it)
    refused = await ours.refusal(
        "STREAM.CREATE.wide-1", {"name": "wide-1", "mirror": {"name": "wide"}}
    )
    assert refused == (10052, "mirror: 'wide' has 3 partitions: a mirror needs as many, not 1")
    await ours.create("wide-m", mirror={"name": "wide"}, metadata={"streamlog.partitions": "3"})
    await ours.create("wide-s", sources=[{"name": "wide"}])
    await ours.create(
        "wide-n",
        sources=[{"name": "wide"}],
        metadata={"streamlog.partitions": "2", "streamlog.partition_by": "key"},
    )
    for name in ("wide-m", "wide-s", "wide-n"):
        await has_sourced(ours, name, 30)
    values: dict[str, list[int]] = {}
    for name, count in (("wide", 3), ("wide-m", 3), ("wide-s", 1), ("wide-n", 2)):
        found = [partition_values(node.kafka, name, number) for number in range(count)]
        values[name] = [it for part in found for it in part]
        assert sorted(values[name]) == list(range(30))
    assert values["wide-m"] == values["wide"], "the same in each partition"
    assert (await ours.info("wide-s"))["sources"][0]["lag"] == 0


def partition_values(kafka: str, stream: str, number: int) -> list[int]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "p"})
    try:
        tp = TopicPartition(stream, number)
        low, high = consumer.get_watermark_offsets(tp, timeout=10)
        consumer.assign([TopicPartition(stream, number, low)])
        found: list[Any] = []
        while low < high:
            for message in consumer.consume(100, timeout=0.2):
                found.append(message)
                low = (message.offset() or 0) + 1
        return [int(it.value()) for it in found]
    finally:
        consumer.close()


@pytest.mark.parametrize("kind", ["ours", "theirs"])
async def test_key_value_bucket_is_mirrored(ours: Api, theirs: Api, kind: str) -> None:
    bucket = f"b-{kind}"
    if kind == "ours":
        js, external = ours.client.jetstream(domain="streamlog"), None
    else:
        js, external = theirs.client.jetstream(), {"api": HUB}
    kv = await js.create_key_value(bucket=bucket, history=1)
    for number in range(3):
        await kv.put("a", b"%d" % number)
    revision = await kv.put("b", b"x")
    origin = f"KV_{bucket}"
    place = {"name": origin} | ({"external": external} if external else {})
    await ours.create(
        f"{origin}-m", mirror=place, mirror_direct=True, allow_direct=True,
        max_msgs_per_subject=1, allow_rollup_hdrs=True, deny_delete=True,
    )  # fmt: skip
    await has_all(ours, f"{origin}-m", revision)
    names = [f"{origin}-m", *([origin] if external else [])]
    for name in names:  # a mirror answers for an origin that is not here
        for key, value in (("a", b"2"), ("b", b"x")):
            subject = f"{OURS}.DIRECT.GET.{name}.$KV.{bucket}.{key}"
            answer = await ours.client.request(subject, timeout=5)
            assert answer.data == value
            assert (answer.headers or {})["Nats-Subject"] == f"$KV.{bucket}.{key}"
    await kv.put("a", b"3")
    await has_all(ours, f"{origin}-m", revision + 1)
    await are_same_last(ours, f"{origin}-m", f"$KV.{bucket}.a", b"3")


async def are_same_last(api: Api, name: str, subject: str, value: bytes) -> None:
    reply = await api.ask(f"STREAM.MSG.GET.{name}", {"last_by_subj": subject})
    assert base64.b64decode(reply["message"]["data"]) == value


async def test_mirror_keeps_all_of_a_subject_unless_it_is_compacted(
    tmp_path: Path, theirs: Api
) -> None:
    """JetStream keeps the newest, as ``max_msgs_per_subject`` says. Compaction comes to the same, a little later."""
    log = {"compaction_interval_ms": 50, "checkpoint_interval_ms": 50}
    compacted = {
        "streamlog.cleanup_policy": "compact",
        "streamlog.segment_age_ms": "100",
        "streamlog.min_cleanable_dirty_ratio": "0",
    }
    with Cluster(tmp_path, nodes=1, settings={"nats_listen": {}, "log": log}) as cluster:
        async with api_of(cluster[1].port_url, OURS) as ours:
            shared: dict[str, Any] = {"max_msgs_per_subject": 1, "mirror": {"name": "many"}}
            for api in (theirs, ours):
                await api.create("many", subjects=["many.*"])
                await api.create("newest", **shared)
                for number in range(20):
                    await api.publish(f"many.{number % 2}", b"%d" % number)
                await has_all(api, "newest", 20)
            assert await theirs.message("newest", 18) is None
            assert await ours.message("newest", 18) is not None
            await ours.create(
                "compacted", **shared, metadata=compacted, duplicate_window=100_000_000
            )
            await has_all(ours, "compacted", 20)

            async def found(name: str) -> list[int]:
                records = await asyncio.to_thread(read_stream, cluster.servers, name)
                return numbers(records)

            assert await found("newest") == [*range(20)]

            async def is_compacted() -> bool:
                return await found("compacted") == [18, 19]

            await until(is_compacted, "the newest of each subject are left")
            for sequence in (18, 19, 20):
                kept = await theirs.message("newest", sequence) is not None
                assert (await ours.message("compacted", sequence) is not None) == kept


async def test_much_is_mirrored_under_flow_control(
    ours: Api, theirs: Api, node: NodeProcess
) -> None:
    """More than the origin sends without an answer."""
    await theirs.create("much", subjects=["much"])
    js, payload = theirs.client.jetstream(), bytes(60_000)
    for _ in range(12):
        await asyncio.gather(*(js.publish("much", payload) for _ in range(100)))
    place = {"name": "much", "external": {"api": HUB}}
    await ours.create("much-m", mirror=place)
    await ours.create("much-s", sources=[place])
    await has_all(ours, "much-m", 1_200)
    await has_sourced(ours, "much-s", 1_200)
    records = read_stream(node.kafka, "much-s")
    said = [dict(it.headers)["Nats-Stream-Source"].split(b" ")[1] for it in records]
    assert [int(it) for it in said] == list(range(1, 1_201))


async def test_lag_is_a_metric(ours: Api, node: NodeProcess) -> None:
    await filled(ours, "metric")
    await ours.create("metric-m", mirror={"name": "metric"})
    await has_all(ours, "metric-m", 12)
    labels = '{origin="metric",partition="0",stream="metric-m"}'
    wait_until(lambda: f"streamlog_origin_lag{labels} 0.0" in node.http("/metrics")[1], "lag")
    assert f"streamlog_origin_error{labels} 0.0" in node.http("/metrics")[1]


# Other ways


async def test_node_that_is_a_client_of_nats_mirrors_its_jetstream(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    server.command = [*server.command, "-js", "-sd", str(tmp_path / "js")]
    with Cluster(tmp_path, nodes=1, nats=server) as cluster:
        async with (
            api_of(server.url, "$JS.API") as theirs,
            api_of(server.url, OURS) as ours,
        ):
            await filled(theirs, "o")
            place = {"name": "o", "external": {"api": "$JS.API"}}
            await ours.create("m", mirror=place)
            await ours.create("s", sources=[place])
            await has_all(ours, "m", 12)
            await are_same(theirs, "o", ours, "m")
            await has_sourced(ours, "s", 7)
            server.kill()
            server.start()
            await theirs.publish("o.late", b"90")
            await has_all(ours, "m", 13)
            await has_sourced(ours, "s", 8)
            await are_same(theirs, "o", ours, "m")
            assert numbers(read_stream(cluster.servers, "s")) == [2, 3, 5, 6, 9, 10, 11, 90]


async def test_another_cluster_is_mirrored_by_a_hub(tmp_path: Path) -> None:
    hub = hub_in(tmp_path / "hub")
    hub.start()
    nodes = [
        NodeProcess(1, tmp_path / domain, settings=leaf_settings(hub, domain))
        for domain in ("east", "west")
    ]
    try:
        for it in nodes:
            it.start()
        async with (
            api_of(nodes[0].port_url, "$JS.east.API") as east,
            api_of(nodes[1].port_url, "$JS.west.API") as west,
        ):
            await filled(east, "o")
            place = {"name": "o", "external": {"api": "$JS.east.API"}}
            await west.create("m", mirror=place)
            await west.create("s", sources=[place])
            await has_all(west, "m", 12)
            nodes[0].kill()
            nodes[0].start()
            await east.publish("o.x", b"90")
            last = (await east.state("o"))["last_seq"]
            await has_all(west, "m", last)
            await are_same(east, "o", west, "m")
            await has_sourced(west, "s", 8)
            assert numbers(read_stream(nodes[1].kafka, "s")) == [2, 3, 5, 6, 9, 10, 11, 90]
    finally:
        for each in (*nodes, hub):
            each.kill()
