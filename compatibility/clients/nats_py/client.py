"""nats-py; see ``compatibility.port``."""

import asyncio
import json
import sys
import time
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import nats
from contract import NotOffered, put
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import MaxPayloadError, NoRespondersError
from nats.js.api import StreamConfig
from nats.js.errors import KeyWrongLastSequenceError, NotFoundError

WAIT_S = 10.0


def same(found: object, wanted: object, what: str) -> None:
    if found != wanted:
        raise AssertionError(f"{what}: {found!r} instead of {wanted!r}")


async def connect(servers: str, **options: Any) -> Client:
    return await nats.connect(servers.split(","), reconnect_time_wait=0.2, **options)


async def texts(subscription: Any, count: int) -> list[str]:
    return [(await subscription.next_msg(WAIT_S)).data.decode() for _ in range(count)]


async def do_connect(servers: str) -> None:
    client = await connect(servers)
    same(client.is_connected, True, "connected")
    await client.flush()
    await client.close()


async def do_pubsub(servers: str) -> None:
    sender, reader = await connect(servers), await connect(servers)
    base = f"t.{uuid.uuid4().hex}"
    exact = await reader.subscribe(f"{base}.a.b")
    star = await reader.subscribe(f"{base}.*.b")
    rest = await reader.subscribe(f"{base}.>")
    await reader.flush()
    for number in range(100):
        await sender.publish(f"{base}.a.b", str(number).encode())
    await sender.publish(f"{base}.c.b", b"")
    await sender.publish(f"{base}.c.b.d", bytes(range(256)))
    await sender.flush()
    hundred = [str(number) for number in range(100)]
    same(await texts(exact, 100), hundred, "exact")
    same(await texts(star, 101), [*hundred, ""], "*")
    same(await texts(rest, 101), [*hundred, ""], ">")
    last = await rest.next_msg(WAIT_S)
    same((last.subject, last.data), (f"{base}.c.b.d", bytes(range(256))), "binary")
    await sender.close()
    await reader.close()


async def do_queue(servers: str) -> None:
    clients = [await connect(servers) for _ in range(3)]
    subject, all_there = uuid.uuid4().hex, asyncio.Event()
    seen: list[list[int]] = [[], []]

    def remember(place: int) -> Callable[[Msg], Coroutine[Any, Any, None]]:
        async def called(message: Msg) -> None:
            seen[place].append(int(message.data))
            if len(seen[0]) + len(seen[1]) == 200:
                all_there.set()

        return called

    for place in (0, 1):
        await clients[place].subscribe(subject, queue="q", cb=remember(place))
        await clients[place].flush()
    for number in range(200):
        await clients[2].publish(subject, str(number).encode())
    await clients[2].flush()
    async with asyncio.timeout(WAIT_S):
        await all_there.wait()
    same(sorted(seen[0] + seen[1]), list(range(200)), "both members")
    same(bool(seen[0]) and bool(seen[1]), True, "each member has some")
    for client in clients:
        await client.close()


async def do_headers(servers: str) -> None:
    client, subject = await connect(servers), uuid.uuid4().hex
    subscription = await client.subscribe(subject)
    await client.publish(subject, b"x", headers={"Colour": "red blue", "Empty": "", "n": "1:2"})
    message = await subscription.next_msg(WAIT_S)
    same(dict(message.headers or {}), {"Colour": "red blue", "Empty": "", "n": "1:2"}, "headers")
    same(message.data, b"x", "payload")
    await client.close()


async def do_request(servers: str) -> None:
    client, subject = await connect(servers), uuid.uuid4().hex

    async def answer(message: Msg) -> None:
        await message.respond(b"re: " + message.data)

    await client.subscribe(subject, cb=answer)
    asked = [client.request(subject, str(n).encode(), WAIT_S) for n in range(50)]
    got = [message.data.decode() for message in await asyncio.gather(*asked)]
    same(got, [f"re: {n}" for n in range(50)], "answers")
    await client.close()


async def do_no_responders(servers: str) -> None:
    client, started = await connect(servers), time.monotonic()
    try:
        await client.request(uuid.uuid4().hex, b"", WAIT_S)
    except NoRespondersError:
        same(time.monotonic() - started < WAIT_S / 2, True, "at once")
    else:
        raise AssertionError("somebody answered")
    await client.close()


async def do_request_many(servers: str) -> None:
    raise NotOffered("no such call")


async def do_unsubscribe(servers: str) -> None:
    client, subject = await connect(servers), uuid.uuid4().hex
    seen: list[str] = []

    async def called(message: Msg) -> None:
        seen.append(message.data.decode())

    limited = await client.subscribe(subject, cb=called)
    await limited.unsubscribe(3)
    witness = await client.subscribe(subject)
    for number in range(10):
        await client.publish(subject, str(number).encode())
    same(await texts(witness, 10), [str(n) for n in range(10)], "the other")
    await client.flush()
    same(seen, ["0", "1", "2"], "limited")
    await client.close()


async def do_drain(servers: str) -> None:
    sender, reader = await connect(servers), await connect(servers)
    subject, seen = uuid.uuid4().hex, []

    async def slowly(message: Msg) -> None:
        await asyncio.sleep(0.001)
        seen.append(int(message.data))

    await reader.subscribe(subject, cb=slowly)
    await reader.flush()
    for number in range(300):
        await sender.publish(subject, str(number).encode())
    await sender.flush()
    await reader.flush()
    await reader.drain()
    same(reader.is_closed, True, "closed")
    same(seen, list(range(300)), "drained")
    await sender.close()


async def do_max_payload(servers: str) -> None:
    client, subject = await connect(servers), uuid.uuid4().hex
    subscription = await client.subscribe(subject)
    try:
        await client.publish(subject, bytes(client.max_payload + 1))
    except MaxPayloadError:
        pass
    else:
        raise AssertionError("it was sent")
    await client.publish(subject, bytes(client.max_payload))
    message = await subscription.next_msg(WAIT_S)
    same(len(message.data), client.max_payload, "the largest one")
    await client.close()


async def do_reconnect(servers: str, others: int = 0) -> None:
    reconnected = asyncio.Event()

    async def on_reconnect() -> None:
        reconnected.set()

    async def on_error(_: Exception) -> None: ...

    client = await connect(
        servers, reconnected_cb=on_reconnect, error_cb=on_error, max_reconnect_attempts=-1
    )
    subject = uuid.uuid4().hex
    subscription = await client.subscribe(subject)
    await client.flush()
    found = len(client.discovered_servers)
    if others:
        same(found >= others, True, f"{others} more servers are discovered, {found} are")
    put(ready=True)
    await asyncio.wait_for(reconnected.wait(), 60)
    await client.publish(subject, b"again")
    same(await texts(subscription, 1), ["again"], "after it")
    await client.close()


async def do_failover(servers: str) -> None:
    await do_reconnect(servers, others=1)


async def do_pubacks(servers: str) -> None:
    client, name = await connect(servers), uuid.uuid4().hex
    stream = client.jetstream(timeout=WAIT_S)
    await stream.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"]))
    sent = [await stream.publish_async(f"{name}.x", str(n).encode()) for n in range(200)]
    acks = await asyncio.gather(*sent)
    same([ack.seq for ack in acks], list(range(1, 201)), "sequences")
    same({ack.stream for ack in acks}, {name}, "stream")
    once = {"Nats-Msg-Id": "once"}
    first = await stream.publish(f"{name}.x", b"once", headers=once)
    second = await stream.publish(f"{name}.x", b"once", headers=once)
    same((first.seq, bool(first.duplicate)), (201, False), "the first")
    same((second.seq, bool(second.duplicate)), (201, True), "the second")
    await stream.delete_stream(name)
    await client.close()


async def do_streams(servers: str) -> None:
    client, name = await connect(servers), uuid.uuid4().hex
    manager = client.jsm(timeout=WAIT_S)
    made = await manager.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"]))
    same(made.config.name, name, "created")
    for number in range(5):
        await client.jetstream().publish(f"{name}.{number}", str(number).encode())
    same((await manager.stream_info(name)).state.messages, 5, "messages")
    same((await manager.get_msg(name, 2)).data, b"1", "the second")
    same(name in [it.config.name for it in await manager.streams_info()], True, "listed")
    await manager.purge_stream(name)
    same((await manager.stream_info(name)).state.messages, 0, "purged")
    await manager.delete_stream(name)
    try:
        await manager.stream_info(name)
    except NotFoundError:
        pass
    else:
        raise AssertionError("it is still there")
    await client.close()


async def do_key_value(servers: str) -> None:
    client, name = await connect(servers), uuid.uuid4().hex
    stream = client.jetstream(timeout=WAIT_S)
    bucket = await stream.create_key_value(bucket=name, history=5)
    first = await bucket.put("colour", b"red")
    same((await bucket.get("colour")).value, b"red", "value")
    second = await bucket.update("colour", b"blue", last=first)
    same((await bucket.get("colour")).revision, second, "revision")
    try:
        await bucket.update("colour", b"green", last=first)
    except KeyWrongLastSequenceError:
        pass
    else:
        raise AssertionError("an old revision was taken")
    await bucket.delete("colour")
    try:
        await bucket.get("colour")
    except NotFoundError:
        pass
    else:
        raise AssertionError("the key is still there")
    await stream.delete_key_value(name)
    await client.close()


def main() -> None:
    servers, verb, _ = sys.argv[1:4]
    if verb == "version":
        from importlib.metadata import version

        put(version=version("nats-py"))
        return
    try:
        asyncio.run(globals()[f"do_{verb}"](servers, **json.loads(sys.argv[3])))
    except NotOffered as reason:
        put(not_offered=str(reason))
    except Exception as error:
        put(error=f"{type(error).__name__}: {error}")
    else:
        put(done=True)


if __name__ == "__main__":
    main()
