"""A client that backs a stream up and restores it, as JetStream's own tools do."""

import asyncio
import json
from typing import Any, NamedTuple

from nats.aio.client import Client
from nats.aio.msg import Msg

CHUNK_BYTES = 64 * 1024


class Backup(NamedTuple):
    """What a client keeps of a stream."""

    config: dict[str, Any]
    state: dict[str, Any]
    data: bytes
    status: str
    """Of the message that ends it."""


class Asked(Exception):
    """The error of an answer."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["description"])
        self.code: int = error["err_code"]


async def ask(client: Client, subject: str, body: Any, timeout_s: float = 10.0) -> dict[str, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply: dict[str, Any] = json.loads(
        (await client.request(subject, data, timeout=timeout_s)).data
    )
    if "error" in reply:
        raise Asked(reply["error"])
    return reply


async def backup(client: Client, prefix: str, stream: str, **options: Any) -> Backup:
    """Each chunk is answered when it is taken."""
    inbox, chunks = client.new_inbox(), list[bytes]()
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def taken(message: Msg) -> None:
        if not message.data:
            if not ended.done():
                status = (message.headers or {}).get("Status", "204")
                ended.set_result(status)
            return
        chunks.append(message.data)
        if message.reply:
            await client.publish(message.reply, b"")

    subscription = await client.subscribe(inbox, cb=taken)
    reply = await ask(
        client, f"{prefix}.STREAM.SNAPSHOT.{stream}", {"deliver_subject": inbox, **options}
    )
    assert reply["type"] == "io.nats.jetstream.api.v1.stream_snapshot_response"
    status = await asyncio.wait_for(ended, 60)
    await subscription.unsubscribe()
    return Backup(reply["config"], reply["state"], b"".join(chunks), status)


async def restore(client: Client, prefix: str, kept: Backup, **changes: Any) -> dict[str, Any]:
    config = {**kept.config, **changes}
    subject = await begin_restore(client, prefix, kept, config)
    await send_chunks(client, subject, kept.data)
    return await ask(client, subject, b"", timeout_s=60)


async def begin_restore(
    client: Client, prefix: str, kept: Backup, config: dict[str, Any] | None = None
) -> str:
    config = kept.config if config is None else config
    reply = await ask(
        client,
        f"{prefix}.STREAM.RESTORE.{config['name']}",
        {"config": config, "state": kept.state},
    )
    assert reply["type"] == "io.nats.jetstream.api.v1.stream_restore_response"
    return str(reply["deliver_subject"])


async def send_chunks(client: Client, subject: str, data: bytes) -> None:
    for start in range(0, len(data), CHUNK_BYTES):
        chunk = data[start : start + CHUNK_BYTES]
        answer = await client.request(subject, chunk, timeout=30)
        assert not answer.data, answer.data
