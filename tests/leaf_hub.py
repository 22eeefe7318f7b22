"""A nats-server that takes leafnodes, a node that is one, and clients of both."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from streamlog.config import NatsSection
from streamlog.ingest.nats.leaf import LeafLink
from streamlog.nats.router import Callback, Router, Subscription
from streamlog.nats.sockets import Sockets
from tests.local_node import until
from tools.nodes.node_process import NodeProcess
from tools.nodes.ports import free_port
from tools.nodes.server_process import ServerProcess, listens, program, wait_until


class Hub(ServerProcess):
    """nats-server with JetStream and a default ``leafnodes`` block."""

    def __init__(self, directory: Path, *, more: str = "", binary: str = "") -> None:
        """``binary``: of another release than that of the development environment."""
        self.port, self.leaf_port = free_port(), free_port()
        config = directory / "hub.conf"
        config.write_text(
            f'listen: "127.0.0.1:{self.port}"\n'
            f'jetstream: {{ store_dir: "{directory / "js"}" }}\n'
            f'leafnodes {{ listen: "127.0.0.1:{self.leaf_port}"\n{more} }}\n'
        )
        command = [binary or program("nats-server"), "-c", str(config)]
        super().__init__(command, directory / "hub.log")
        self.url = f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.spawn()
        wait_until(lambda: listens(self.port) and listens(self.leaf_port), "nats-server")


def node_of(hub: Hub, directory: Path, login: str = "") -> NodeProcess:
    server = f"nats-leaf://{login}127.0.0.1:{hub.leaf_port}"
    nats = {"servers": [server], "reconnect_backoff_ms": 50}
    return NodeProcess(1, directory, settings={"nats": nats, "nats_listen": {}})


async def heard_from(publisher: Client, listener: Client) -> None:
    """Return when the one hears the other."""
    heard = asyncio.Event()

    async def take(_: Msg) -> None:
        heard.set()

    subject = f"probe.{id(heard)}"
    subscription = await listener.subscribe(subject, cb=take)
    await listener.flush()
    async with asyncio.timeout(20):
        while not heard.is_set():
            await publisher.publish(subject, b"")
            await asyncio.sleep(0.02)
    await subscription.unsubscribe()


async def published(client: Client, subject: str, payload: bytes, **headers: str) -> int:
    """While there is no link, or before the other side knows of the stream, there are no responders."""
    js = client.jetstream()
    async with asyncio.timeout(20):
        while True:
            try:
                ack = await js.publish(subject, payload, timeout=2, headers=headers or None)
            except (nats.js.errors.NoStreamResponseError, TimeoutError, nats.errors.TimeoutError):
                await asyncio.sleep(0.05)
            else:
                return ack.seq


@contextlib.asynccontextmanager
async def leaf_router(hub: Hub) -> AsyncIterator[Router]:
    """The router of a node that has nothing else but its link to the hub."""
    router = Router()
    sockets = Sockets(router, write_timeout_ms=10_000)
    sockets.begin()
    link = LeafLink(
        NatsSection(servers=(f"nats-leaf://127.0.0.1:{hub.leaf_port}",)),
        router,
        sockets,
        node_id=1,
        cluster_id="c",
        payload_bytes_max=1 << 20,
    )
    running = [asyncio.create_task(each) for each in (sockets.run(), link.run())]
    try:
        await until(lambda: link.is_open)
        yield router
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        sockets.close()


async def stored_messages_have_their_subject(
    hub: Hub, client: Client, ack: bytes, shown: bytes
) -> None:
    """A client of nats-server gets what a node delivers as a consumer does, and acknowledges it; ``ack``: the
    ack subject; ``shown``: under which the message is stored.
    """
    subscription = await client.subscribe("in.*")
    member = await client.subscribe("push", queue="workers")
    await client.flush()
    acked: list[bytes] = []
    async with leaf_router(hub) as router:
        part = Callback(router, failed=_fail)
        router.add(Subscription(part, b"$JS.ACK.>", target=lambda *it: acked.append(it[0])))
        await until(lambda: router.interest(b"in.1") == 1)
        await until(lambda: router.interest(b"push", queue=b"workers") == 1)
        assert router.interest(b"push", queue=b"others") == 0
        for block in (b"", b"NATS/1.0\r\nA: b\r\n\r\n"):
            for subject, heard in ((b"in.1", subscription), (b"push", member)):
                count = router.deliver_as(subject, shown, b"hello", reply=ack, block=block)
                assert count == 1
                message = await heard.next_msg(timeout=10)
                assert (message.subject, message.reply) == (shown.decode(), ack.decode())
                assert (message.data, message.headers) == (b"hello", {"A": "b"} if block else None)
                await message.respond(b"+ACK")
        await until(lambda: len(acked) >= 4)
        assert acked == [ack] * 4
        await subscription.unsubscribe()
        await client.flush()
        await until(lambda: router.interest(b"in.1") == 0)


def _fail(error: Exception) -> None:
    raise error
