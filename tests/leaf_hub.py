"""A nats-server that takes leafnodes, a node that is one, and clients of both."""

import asyncio
from pathlib import Path

import nats
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

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
