import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from streamlog.cli.ledger.options import AtNode, ChannelName, KeyFile, SignerName, ask, signer_of
from streamlog.cli.options import options as o
from streamlog.cli.output import print_json, say
from streamlog.errors import ConfigError

if TYPE_CHECKING:
    from streamlog.ledger.api import LedgerClient
    from streamlog.ledger.broadcast import BroadcastAck

WINDOW = 256
"""Messages under way at once."""


def broadcast(
    channel: ChannelName,
    payload: Annotated[str, typer.Argument(help="The message; - reads standard input.")] = "-",
    lines: Annotated[bool, typer.Option("--lines", help="Each line is a message.")] = False,
    record_key: Annotated[
        str | None, typer.Option("--record-key", help="The record's key, as it is ordered.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", help="NAME:VALUE; may be repeated.")
    ] = None,
    key: KeyFile = None,
    name: SignerName = None,
    node: AtNode = "",
    nats: o.NatsUrl = o.NATS_URL,
    creds: o.Credentials = None,
    as_json: o.Json = False,
) -> None:
    """Have messages ordered; returns when they are committed to the channel's stream."""
    headers = tuple(_header(text) for text in header or ())
    payloads = _payloads(payload, lines=lines)
    key_bytes = None if record_key is None else record_key.encode()

    async def send(client: "LedgerClient") -> "tuple[int, BroadcastAck | None]":
        count, last = 0, None
        async for ack in _broadcast_all(client, channel, payloads, key_bytes, headers, node):
            count, last = count + 1, ack
        return count, last

    started = time.monotonic()
    count, last = ask(nats, creds, send, signer=signer_of(key, name))
    seconds = round(time.monotonic() - started, 3)
    offset = None if last is None else last.offset
    if as_json:
        print_json(
            {"channel": channel, "broadcast": count, "last_offset": offset, "seconds": seconds}
        )
    elif last is None:
        say("nothing to broadcast")
    else:
        say(f"{count} committed to channel {channel}, the last at offset {offset}")


async def _broadcast_all(
    client: "LedgerClient",
    channel: str,
    payloads: Iterator[bytes],
    key: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
    node: str,
) -> "AsyncIterator[BroadcastAck]":
    """Some at once, in windows; a window's messages keep their order at one node."""
    while window := list(islice(payloads, WINDOW)):
        async with asyncio.TaskGroup() as tasks:
            sent = [
                tasks.create_task(
                    client.broadcast(channel, payload, key=key, headers=headers, node=node)
                )
                for payload in window
            ]
        for task in sent:
            yield task.result()


def _payloads(payload: str, *, lines: bool) -> Iterator[bytes]:
    if payload != "-":
        source: Iterable[bytes] = payload.encode().splitlines() if lines else [payload.encode()]
    elif lines:
        source = (line.rstrip(b"\r\n") for line in sys.stdin.buffer)
    else:
        source = [sys.stdin.buffer.read()]
    return iter(source)


def _header(text: str) -> tuple[str, bytes | None]:
    name, colon, value = text.partition(":")
    if not name or not colon:
        raise ConfigError("--header", f"{text!r} is no header", "write NAME:VALUE")
    return name.strip(), value.strip().encode()
