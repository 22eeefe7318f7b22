"""STREAM.SNAPSHOT and STREAM.RESTORE as clients use them. What JetStream has as well runs beside a real nats-server: so
the test says what JetStream does. Backups of each are restored by each.
"""

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from tests.integration.jetstream_pair import JetStreamServer
from tests.integration.snapshot_client import (
    Asked,
    Backup,
    ask,
    backup,
    begin_restore,
    restore,
    send_chunks,
)
from tests.integration.test_port import port_node

THEIRS, OURS = "nats-server", "streamlog"
BOTH = (THEIRS, OURS)


class Stand(NamedTuple):
    """A server, and a client of it."""

    name: str
    client: Client
    prefix: str

    async def api(self, verb: str, body: Any = b"") -> dict[str, Any]:
        return await ask(self.client, f"{self.prefix}.{verb}", body)

    async def create(self, name: str, **config: Any) -> None:
        config = {"name": name, "subjects": [f"{name}.>"], "storage": "file", **config}
        await self.api(f"STREAM.CREATE.{name}", config)

    async def publish(self, name: str, count: int, **headers: str) -> None:
        for number in range(count):
            subject, data = f"{name}.{number % 3}", b"x" * number
            await self.client.request(subject, data, timeout=5, headers=headers or None)

    async def code(self, verb: str, body: Any = b"") -> int:
        with pytest.raises(Asked) as refused:
            await self.api(verb, body)
        return refused.value.code

    async def messages(self, name: str) -> list[Any]:
        """Each of the stream's sequences."""
        state = (await self.api(f"STREAM.INFO.{name}"))["state"]
        found: list[Any] = [state["first_seq"]]
        for sequence in range(max(1, state["first_seq"]), state["last_seq"] + 1):
            try:
                got = await self.api(f"STREAM.MSG.GET.{name}", {"seq": sequence})
            except Asked as error:
                found.append((sequence, error.code))
                continue
            it = got["message"]
            seconds, _, digits = it["time"].rstrip("Z").partition(".")
            when = f"{seconds}.{digits.ljust(3, '0')[:3]}"
            found.append((it["seq"], it["subject"], it.get("data"), it.get("hdrs"), when))
        return found

    async def consumer(self, stream: str, name: str) -> dict[str, Any]:
        info = await self.api(f"CONSUMER.INFO.{stream}.{name}")
        told = ("num_ack_pending", "num_redelivered", "num_pending")
        places = {
            it: (info[it]["consumer_seq"], info[it]["stream_seq"])
            for it in ("delivered", "ack_floor")
        }
        return {**places, **{it: info[it] for it in told}}

    async def fetch(self, stream: str, consumer: str, batch: int) -> list[Msg]:
        inbox = self.client.new_inbox()
        subscription = await self.client.subscribe(inbox)
        subject = f"{self.prefix}.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        body = json.dumps({"batch": batch, "expires": 1_000_000_000}).encode()
        await self.client.publish(subject, body, reply=inbox)
        found = [await subscription.next_msg(timeout=5) for _ in range(batch)]
        await subscription.unsubscribe()
        return found

    async def durable(self, stream: str, name: str, **config: Any) -> None:
        config = {"durable_name": name, "name": name, "ack_policy": "explicit", **config}
        body = {"stream_name": stream, "config": config}
        await self.api(f"CONSUMER.CREATE.{stream}.{name}", body)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("snapshots")
    server, node = JetStreamServer(folder), port_node(folder / "node")
    try:
        server.start()
        node.start()
        yield {THEIRS: server, OURS: node}
        assert "Traceback" not in node.log_text()
    finally:
        node.kill()
        server.kill()


@pytest.fixture
async def stands(servers: dict[str, Any]) -> AsyncIterator[dict[str, Stand]]:
    prefixes = {THEIRS: "$JS.API", OURS: "$JS.streamlog.API"}
    made = {
        name: Stand(name, await nats.connect(servers[name].url), prefixes[name]) for name in BOTH
    }
    yield made
    for it in made.values():
        await it.client.close()


_NUMBERS = iter(range(1_000))


def new_name() -> str:
    """nats-server removes the files of a deleted stream in the background."""
    return f"s{next(_NUMBERS)}"


@pytest.fixture
def name() -> str:
    return new_name()


async def moved(source: Stand, target: Stand, name: str, **options: Any) -> Backup:
    """The stream's backup, restored at ``target`` after the source's own has gone."""
    kept = await backup(source.client, source.prefix, name, **options)
    assert kept.status == "204"
    await source.api(f"STREAM.DELETE.{name}")
    reply = await restore(target.client, target.prefix, kept)
    assert reply["type"] == "io.nats.jetstream.api.v1.stream_create_response"
    assert reply["config"]["name"] == name
    return kept


@pytest.mark.parametrize("target", BOTH)
@pytest.mark.parametrize("source", BOTH)
async def test_a_stream_is_the_same_after_its_restore(
    stands: dict[str, Stand], name: str, source: str, target: str
) -> None:
    """Sequences, times, subjects, headers, payloads; what was removed, in each of the ways; consumers."""
    its, other = stands[source], stands[target]
    await its.create(name)
    await its.publish(name, 40, A="b")
    await its.durable(name, "w", filter_subject=f"{name}.*")
    await its.durable(name, "fresh", deliver_policy="new")
    got = await its.fetch(name, "w", 10)
    for message in [*got[:4], got[6]]:
        await message.ack_sync()
    for sequence, keeps in ((5, False), (17, False), (20, True)):
        body = {"seq": sequence, "no_erase": keeps}
        await its.api(f"STREAM.MSG.DELETE.{name}", body)
    await its.api(f"STREAM.PURGE.{name}", {"seq": 3})
    before, worker = await its.messages(name), await its.consumer(name, "w")
    await moved(its, other, name)
    assert await other.messages(name) == before
    assert await other.consumer(name, "w") == worker
    again = await other.fetch(name, "w", 3)
    assert [it.data for it in again] == [b"x" * it for it in (10, 11, 12)]
    assert (await other.consumer(name, "fresh"))["num_pending"] == 0
    await other.publish(name, 1)
    assert len(await other.messages(name)) == len(before) + 1


@pytest.mark.parametrize("target", BOTH)
@pytest.mark.parametrize("source", BOTH)
async def test_an_emptied_stream_goes_on_where_it_ended(
    stands: dict[str, Stand], name: str, source: str, target: str
) -> None:
    its, other = stands[source], stands[target]
    await its.create(name)
    await its.publish(name, 7)
    await its.api(f"STREAM.PURGE.{name}")
    await moved(its, other, name)
    state = (await other.api(f"STREAM.INFO.{name}"))["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (0, 8, 7)


@pytest.mark.parametrize("source", BOTH)
async def test_a_stream_without_messages_is_restored(
    stands: dict[str, Stand], name: str, source: str
) -> None:
    await stands[source].create(name)
    await moved(stands[source], stands[OURS], name)
    assert (await stands[OURS].api(f"STREAM.INFO.{name}"))["state"]["last_seq"] == 0
    await stands[OURS].publish(name, 1)
    assert (await stands[OURS].api(f"STREAM.INFO.{name}"))["state"]["last_seq"] == 1


@pytest.mark.parametrize("source", BOTH)
async def test_a_work_queue_has_what_is_left_of_it(
    stands: dict[str, Stand], name: str, source: str
) -> None:
    its, ours = stands[source], stands[OURS]
    await its.create(name, retention="workqueue")
    await its.publish(name, 9)
    await its.durable(name, "w")
    for message in await its.fetch(name, "w", 4):
        await message.ack_sync()
    await moved(its, ours, name)
    info = await ours.api(f"STREAM.INFO.{name}")
    assert info["config"]["retention"] == "workqueue"
    assert (info["state"]["messages"], info["state"]["last_seq"]) == (5, 9)
    (next_one,) = await ours.fetch(name, "w", 1)
    assert next_one.data == b"x" * 4


@pytest.mark.parametrize("source", BOTH)
async def test_messages_without_interest_stay_gone_and_others_are_there(
    stands: dict[str, Stand], name: str, source: str
) -> None:
    its, ours = stands[source], stands[OURS]
    await its.create(name, retention="interest")
    await its.durable(name, "w")
    await its.publish(name, 6)
    for message in await its.fetch(name, "w", 2):
        await message.ack_sync()
    await moved(its, ours, name)
    info = await ours.api(f"STREAM.INFO.{name}")
    assert info["config"]["retention"] == "interest"
    assert info["state"]["messages"] == 4
    got = await ours.fetch(name, "w", 4)
    assert [len(it.data) for it in got] == [2, 3, 4, 5]


@pytest.mark.parametrize("source", BOTH)
async def test_newest_of_each_subject_and_seal_are_kept(
    stands: dict[str, Stand], name: str, source: str
) -> None:
    its, ours = stands[source], stands[OURS]
    await its.create(name, max_msgs_per_subject=2)
    await its.publish(name, 30)
    config = (await its.api(f"STREAM.INFO.{name}"))["config"]
    await its.api(f"STREAM.UPDATE.{name}", {**config, "sealed": True})
    before = (await its.api(f"STREAM.INFO.{name}"))["state"]  # an erasure takes a sequence
    await moved(its, ours, name)
    info = await ours.api(f"STREAM.INFO.{name}")
    assert info["config"]["sealed"] and info["state"]["messages"] == 6
    for end in ("first_seq", "last_seq"):
        assert info["state"][end] == before[end]


async def test_own_settings_are_kept(stands: dict[str, Stand], name: str) -> None:
    ours = stands[OURS]
    await ours.create(name, compression="s2", description="all of them", metadata={"a": "b"})
    await ours.publish(name, 3)
    before = (await ours.api(f"STREAM.INFO.{name}"))["config"]
    await moved(ours, ours, name, no_consumers=True)
    assert (await ours.api(f"STREAM.INFO.{name}"))["config"] == before


async def test_consumers_are_left_out_if_asked(stands: dict[str, Stand], name: str) -> None:
    for its in stands.values():
        stream = f"{name}{its.name[0]}"
        await its.create(stream)
        await its.publish(stream, 2)
        await its.durable(stream, "w")
        await moved(its, its, stream, no_consumers=True, jsck=True)
        assert await its.code(f"CONSUMER.INFO.{stream}.w") == 10014


async def test_both_refuse_alike(stands: dict[str, Stand], name: str) -> None:
    codes = []
    for its in stands.values():
        await its.create(name)
        config = {"name": name, "subjects": [f"{name}.>"], "storage": "file"}
        free = {**config, "name": f"{name}free", "subjects": ["free.>"]}
        whole = {"config": config, "state": {}}
        codes.append(
            [
                await its.code(f"STREAM.SNAPSHOT.{name}"),
                await its.code(f"STREAM.SNAPSHOT.{name}", b"{"),
                await its.code(f"STREAM.SNAPSHOT.{name}", {"deliver_subject": ""}),
                await its.code(f"STREAM.SNAPSHOT.{name}", {"deliver_subject": "a b"}),
                await its.code("STREAM.SNAPSHOT.missing", {"deliver_subject": "a"}),
                await its.code(f"STREAM.RESTORE.{name}"),
                await its.code(f"STREAM.RESTORE.{name}", b"["),
                await its.code(f"STREAM.RESTORE.{name}", whole),
                await its.code("STREAM.RESTORE.other", whole),
                await its.code(
                    f"STREAM.RESTORE.{name}free", {"config": {**free, "max_age": 1}, "state": {}}
                ),
            ]
        )
    assert codes[0] == codes[1]


async def test_a_client_may_subscribe_after_the_answer(stands: dict[str, Stand], name: str) -> None:
    """It has a subscription for all its requests, which matches, and does not take the chunks."""
    for its in stands.values():
        await its.create(name)
        await its.publish(name, 20)
        token = its.client.new_inbox()
        await its.client.subscribe(f"{token}.*")
        await its.client.flush()
        await its.api(f"STREAM.SNAPSHOT.{name}", {"deliver_subject": f"{token}.x"})
        await asyncio.sleep(0.3)
        subscription = await its.client.subscribe(f"{token}.x")
        first = await subscription.next_msg(timeout=5)
        assert first.data.startswith(b"\xff\x06\x00\x00")


async def test_chunks_have_their_size_and_wait_for_answers(
    stands: dict[str, Stand], name: str
) -> None:
    for its in stands.values():
        await its.create(name)
        for _ in range(20):
            await its.client.request(f"{name}.a", os.urandom(1_000), timeout=5)
        inbox, got = its.client.new_inbox(), list[Msg]()
        come = asyncio.Event()

        async def taken(message: Msg, got: list[Msg] = got, come: asyncio.Event = come) -> None:
            got.append(message)
            come.set()

        await its.client.subscribe(inbox, cb=taken)
        body = {"deliver_subject": inbox, "chunk_size": 1, "window_size": 4096}
        await its.api(f"STREAM.SNAPSHOT.{name}", body)
        async with asyncio.timeout(20):
            while not got or got[-1].data:
                come.clear()
                await come.wait()
        assert [len(it.data) for it in got] == [1024, 1024, 1024, 1024, 0]
        assert [bool(it.reply) for it in got] == [True] * 4 + [False]
        headers = got[-1].headers or {}
        assert (headers.get("Status"), headers.get("Description")) == ("408", "No Flow Response")


async def test_a_restore_that_stands_still_leaves_nothing(
    stands: dict[str, Stand], servers: dict[str, Any], name: str
) -> None:
    ours = stands[OURS]
    kept = await a_backup(ours, name)
    subject = await begin_restore(ours.client, ours.prefix, kept)
    await send_chunks(ours.client, subject, kept.data[:100])
    assert await ours.code(f"STREAM.INFO.{name}") == 10059
    with pytest.raises((nats.errors.NoRespondersError, nats.errors.TimeoutError)):
        async with asyncio.timeout(20):
            while True:
                await asyncio.sleep(6)
                await ours.client.request(subject, kept.data[100:200], timeout=1)
    assert await ours.code(f"STREAM.INFO.{name}") == 10059
    await restore(ours.client, ours.prefix, kept)


async def a_backup(ours: Stand, name: str, count: int = 20) -> Backup:
    await ours.create(name)
    await ours.publish(name, count)
    kept = await backup(ours.client, ours.prefix, name)
    await ours.api(f"STREAM.DELETE.{name}")
    return kept


@pytest.mark.parametrize("damage", ["cut", "wrong", "no frames", "another name", "nothing"])
async def test_what_is_damaged_is_refused_and_leaves_nothing(
    stands: dict[str, Stand], name: str, damage: str
) -> None:
    ours = stands[OURS]
    kept = await a_backup(ours, name)
    data, config = kept.data, kept.config
    match damage:
        case "cut":
            data = data[:-10]
        case "wrong":
            data = data[:400] + bytes([data[400] ^ 1]) + data[401:]
        case "no frames":
            data = b"\x1f\x8b" + data
        case "another name":
            name = f"{name}x"
            config = {**config, "name": name}
        case "nothing":
            data = b""
    subject = await begin_restore(ours.client, ours.prefix, kept, config)
    if data:
        first = await ours.client.request(subject, data, timeout=10)
        reply = first.data or (await ours.client.request(subject, b"", timeout=10)).data
    else:
        reply = (await ours.client.request(subject, b"", timeout=10)).data
    told = json.loads(reply)
    assert told["type"] == "io.nats.jetstream.api.v1.stream_create_response"
    assert told["error"]["err_code"] == 10062
    assert await ours.code(f"STREAM.INFO.{name}") == 10059
    assert await ours.code(f"CONSUMER.NAMES.{name}") == 10059


async def test_streams_that_have_no_snapshot_are_refused(
    stands: dict[str, Stand], servers: dict[str, Any], name: str
) -> None:
    ours = stands[OURS]
    await ours.create(name)
    mirror = {"name": f"{name}m", "mirror": {"name": name}, "storage": "file"}
    await ours.api(f"STREAM.CREATE.{name}m", mirror)
    kept = await backup(ours.client, ours.prefix, f"{name}m")
    await ours.api(f"STREAM.DELETE.{name}m")
    with pytest.raises(Asked, match="a mirror is not restored"):
        await restore(ours.client, ours.prefix, kept)
    metadata = {"_streamlog.restoring": "1 x"}
    await ours.create(f"{name}h", metadata=metadata)
    assert "metadata" not in (await ours.api(f"STREAM.INFO.{name}h"))["config"]


async def test_advisories_tell_of_both(stands: dict[str, Stand], name: str) -> None:
    said: dict[str, list[tuple[str, list[str]]]] = {}
    for its in stands.values():
        heard = list[dict[str, Any]]()
        ended = asyncio.Event()

        async def taken(
            message: Msg, heard: list[dict[str, Any]] = heard, ended: asyncio.Event = ended
        ) -> None:
            heard.append(json.loads(message.data))
            if "restore_complete" in message.data.decode():
                ended.set()

        for kind in ("SNAPSHOT", "RESTORE"):
            for end in ("CREATE", "COMPLETE"):
                subject = f"$JS.EVENT.ADVISORY.STREAM.{kind}_{end}.>"
                await its.client.subscribe(subject, cb=taken)
        await its.create(name)
        await its.publish(name, 3)
        await moved(its, its, name)
        await asyncio.wait_for(ended.wait(), 10)
        told = [(it["type"], sorted(it.keys() - {"domain"})) for it in heard]
        said[its.name] = sorted(told)
    assert said[OURS] == said[THEIRS]
    assert len(said[OURS]) == 4


@pytest.mark.parametrize("target", BOTH)
@pytest.mark.parametrize("source", BOTH)
@pytest.mark.parametrize("first", [1_000, 10**12])
@pytest.mark.parametrize("count", [0, 3])
async def test_stream_that_begins_late_is_moved_with_its_sequences(
    stands: dict[str, Stand], name: str, source: str, target: str, first: int, count: int
) -> None:
    await stands[source].create(name, first_seq=first, storage="memory")
    await stands[source].publish(name, count)
    before = await stands[source].messages(name)
    await moved(stands[source], stands[target], name)
    assert await stands[target].messages(name) == before
    config = (await stands[target].api(f"STREAM.INFO.{name}"))["config"]
    storage = "file" if (source, target) == (OURS, THEIRS) else "memory"
    assert (config["first_seq"], config["storage"]) == (first, storage)
    await stands[target].publish(name, 1)
    assert (await stands[target].api(f"STREAM.INFO.{name}"))["state"]["last_seq"] == first + count


async def test_stream_begins_where_its_state_says(stands: dict[str, Stand], name: str) -> None:
    """Files of older nats-servers have messages that were purged."""
    ours = stands[OURS]
    await ours.create(name)
    await ours.publish(name, 7)
    before = await ours.messages(name)
    kept = await backup(ours.client, ours.prefix, name)
    await ours.api(f"STREAM.DELETE.{name}")
    told = kept._replace(state={**kept.state, "first_seq": 5})
    await restore(ours.client, ours.prefix, told)
    assert await ours.messages(name) == [5, *before[5:]]


async def test_nothing_is_delivered_before_the_stream_is_there(
    stands: dict[str, Stand], name: str
) -> None:
    """Its consumers come one after the other; the first one delivers to a subject that a client listens to."""
    ours = stands[OURS]
    await ours.create(name)
    await ours.publish(name, 3)
    deliver = ours.client.new_inbox()
    await ours.durable(name, "a", deliver_subject=deliver)
    for number in range(80):
        await ours.durable(name, f"b{number}")
    kept = await backup(ours.client, ours.prefix, name)
    await ours.api(f"STREAM.DELETE.{name}")
    seen, inbox = list[int](), ours.client.new_inbox()
    asked = asyncio.Event()

    async def take(message: Msg) -> None:
        if not message.reply.startswith("$JS.ACK."):
            return  # there is no such consumer yet, or nothing for it
        if not seen:
            seen.append(0)
            try:
                seen[0] = (await ours.api(f"STREAM.INFO.{name}"))["state"]["messages"]
            finally:
                asked.set()
        await message.ack()

    async def pull_all_the_time() -> None:
        subject = f"{ours.prefix}.CONSUMER.MSG.NEXT.{name}.b0"
        while not asked.is_set():
            await ours.client.publish(subject, b'{"no_wait":true}', reply=inbox)
            await asyncio.sleep(0.001)

    early = await ours.client.subscribe(inbox, cb=take)
    pushed = await ours.client.subscribe(deliver, cb=take)
    pulling = asyncio.create_task(pull_all_the_time())
    await restore(ours.client, ours.prefix, kept)
    async with asyncio.timeout(10):
        await asked.wait()
    await pulling
    assert seen == [3]
    await early.unsubscribe()
    await pushed.unsubscribe()


async def has(stand: Stand, stream: str, count: int) -> None:
    """So many messages, or more."""
    async with asyncio.timeout(20):
        while (await stand.api(f"STREAM.INFO.{stream}"))["state"]["messages"] < count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_source_goes_on_behind_a_restore_of_its_origin(
    stands: dict[str, Stand], name: str
) -> None:
    """A restored stream is another one, with the messages of the one before."""
    ours, reader = stands[OURS], new_name()
    await ours.create(name)
    await ours.publish(name, 20)
    await ours.create(reader, sources=[{"name": name}])

    await has(ours, reader, 20)
    await moved(ours, ours, name)
    await ours.publish(name, 5)
    await has(ours, reader, 25)
    await asyncio.sleep(0.5)
    assert (await ours.api(f"STREAM.INFO.{reader}"))["state"]["messages"] == 25


async def test_source_takes_what_is_new_behind_an_older_backup_of_its_origin(
    stands: dict[str, Stand], name: str
) -> None:
    """The new messages have sequences that the source has seen with other messages."""
    ours, reader = stands[OURS], new_name()
    await ours.create(name)
    await ours.publish(name, 10)
    kept = await backup(ours.client, ours.prefix, name)
    await ours.publish(name, 10)
    await ours.create(reader, sources=[{"name": name}])

    await has(ours, reader, 20)
    await ours.api(f"STREAM.DELETE.{name}")
    await restore(ours.client, ours.prefix, kept)
    await ours.publish(name, 5)
    await has(ours, reader, 25)
    found = list[int]()
    for sequence in range(1, (await ours.api(f"STREAM.INFO.{reader}"))["state"]["last_seq"] + 1):
        try:
            got = await ours.api(f"STREAM.MSG.GET.{reader}", {"seq": sequence})
        except Asked:  # it says how far the sources have come
            continue
        headers = base64.b64decode(got["message"]["hdrs"]).decode()
        source = headers.split("Nats-Stream-Source:", 1)[1].split("\r\n", 1)[0]
        found.append(int(source.split()[1]))
    assert found == [*range(1, 21), *range(11, 16)]
