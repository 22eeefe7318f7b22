"""The commands of ``streamlog ledger``; all but ``serve`` ask ordering nodes, or read their files."""

import asyncio
import json
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from streamlog.cli.ledger import serve
from streamlog.cli.ledger.options import (
    SEED_BYTES,
    AtNode,
    ChannelName,
    KeyFile,
    SignerName,
    ask,
    limits_of,
    read_seed,
    signer_of,
)
from streamlog.cli.messages.record_lines import json_record
from streamlog.cli.options import options as o
from streamlog.cli.options.options import Json
from streamlog.cli.output import document, print_json, print_pairs, say, write_value
from streamlog.errors import ConfigError

if TYPE_CHECKING:
    from streamlog.ledger.api import LedgerClient
    from streamlog.ledger.assembly import DeliveredBlock
    from streamlog.ledger.channel.broadcast import BroadcastAck
    from streamlog.ledger.core.channel_config import ChannelConfig


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


def deliver(
    channel: ChannelName,
    start: Annotated[
        str, typer.Option(help="oldest, newest (the last one), or a block's number.")
    ] = "oldest",
    stop: Annotated[
        str | None,
        typer.Option(help="A number, itself left out, or newest. Without: for ever."),
    ] = None,
    behavior: Annotated[
        Literal["block_until_ready", "fail_if_not_ready"],
        typer.Option(help="Where a block is not ready; without --stop the second one ends there."),
    ] = "block_until_ready",
    records: Annotated[
        bool, typer.Option("--records", help="The records, each as a line of JSON.")
    ] = False,
    values: Annotated[
        bool, typer.Option("--values", help="The records' values as they are, each a line.")
    ] = False,
    key: KeyFile = None,
    name: SignerName = None,
    node: AtNode = "",
    nats: o.NatsUrl = o.NATS_URL,
    creds: o.Credentials = None,
) -> None:
    """Print a channel's blocks, each as a line of JSON, checked to be one chain."""
    from streamlog.ledger.core.chain import ChainTip, check_next
    from streamlog.ledger.deliver import Behavior

    first = _number("--start", start, ("oldest", "newest"))
    last = None if stop is None else _number("--stop", stop, ("newest",))

    async def show(client: "LedgerClient") -> None:
        tip: ChainTip | None = None
        async for block in client.deliver(channel, first, last, Behavior(behavior), node=node):
            if tip is not None:
                check_next(tip, block.block)
            tip = ChainTip.of(block.block)
            _print(block, records=records, values=values)
            sys.stdout.flush()

    try:
        ask(nats, creds, show, signer=signer_of(key, name))
    except BrokenPipeError:  # `streamlog ledger deliver … | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print(block: "DeliveredBlock", *, records: bool, values: bool) -> None:
    if values:
        for record in block.records():
            write_value(record.value or b"")
    elif records:
        for record in block.records():
            sys.stdout.buffer.write(document(json_record(0, record)).encode())
    else:
        print_json(_described(block))


def _described(block: "DeliveredBlock") -> dict[str, object]:
    header, metadata = block.block.header, block.block.metadata
    last = None
    for record in block.records():
        last = record
    time_ms = 0 if last is None else last.timestamp_ms
    return {
        "number": header.number,
        "hash": block.block.hash.hex(),
        "previous_hash": header.previous_hash.hex(),
        "data_hash": header.data_hash.hex(),
        "records": header.record_count,
        "bytes": header.data_bytes,
        "offsets": [metadata.first_offset, metadata.end_offset],
        "next_offset": metadata.next_offset,
        "last_configuration": metadata.last_configuration,
        "time": datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds"),
        "signer": None if block.signature is None else block.signature.node,
    }


def _number(option: str, text: str, words: Sequence[str]) -> Any:
    if text in words:
        return text
    if not text.isascii() or not text.isdigit():
        remedy = f"write a block's number or {' or '.join(words)}"
        raise ConfigError(option, f"{text!r} is neither", remedy)
    return int(text)


_ROLES = ("administrators", "writers", "readers")


def configure(
    channel: ChannelName,
    file: Annotated[
        Path | None,
        typer.Option(help="The whole configuration as JSON, its sequence one more than before."),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Records in a block.")] = None,
    batch_timeout_ms: Annotated[
        int | None,
        typer.Option(help="Maximum time from a block's first record until the block is cut."),
    ] = None,
    preferred_max_bytes: Annotated[int | None, typer.Option(help="Of a block.")] = None,
    absolute_max_bytes: Annotated[int | None, typer.Option(help="Of a record.")] = None,
    administrator: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=PUBLICKEY of an administrator; may be repeated. Replaces the list; '': empty."
        ),
    ] = None,
    writer: Annotated[list[str] | None, typer.Option(help="The same for writers.")] = None,
    reader: Annotated[list[str] | None, typer.Option(help="The same for readers.")] = None,
    consenter: Annotated[
        list[str] | None, typer.Option(help="The same for consenters: NAME or NAME=PUBLICKEY.")
    ] = None,
    key: KeyFile = None,
    name: SignerName = None,
    node: AtNode = "",
    nats: o.NatsUrl = o.NATS_URL,
    creds: o.Credentials = None,
    as_json: o.Json = False,
) -> None:
    """Change what is named, for all nodes at once, in a block of its own; all else stays."""
    limits = limits_of(batch_size, batch_timeout_ms, preferred_max_bytes, absolute_max_bytes)
    roles = dict(zip(_ROLES, (administrator, writer, reader), strict=True))
    lists: dict[str, Any] = {
        role: _identities(role, texts) for role, texts in roles.items() if texts is not None
    }
    if consenter is not None:
        lists["consenters"] = _nodes(consenter)
    if not (file or limits or lists):
        raise ConfigError("--batch-size", "nothing is to be changed", "name what, or give --file")

    async def change(client: "LedgerClient") -> "tuple[ChannelConfig, BroadcastAck]":
        config = _from_file(file, channel) if file else await client.config(channel, node=node)
        wanted = _changed(config, limits, lists, keeps_sequence=file is not None)
        return wanted, await client.configure(wanted, node=node)

    config, ack = ask(nats, creds, change, signer=signer_of(key, name))
    if as_json:
        print_json({"channel": channel, "sequence": config.sequence, "block": ack.block})
    elif ack.block is None:
        say(f"configuration {config.sequence} is committed; no block has it yet")
    else:
        say(f"configuration {config.sequence} of channel {channel} is in force: block {ack.block}")


def _from_file(file: Path, channel: str) -> "ChannelConfig":
    from streamlog.ledger.core.channel_config import parse_config

    try:
        config = parse_config(file.read_bytes())
    except OSError as error:
        remedy = "name a file that can be read"
        raise ConfigError("--file", f"{file}: {error.strerror}", remedy) from None
    if config.channel != channel:
        problem = f"{file} is of channel {config.channel!r}"
        raise ConfigError("--file", problem, f"name that, or a file of {channel!r}")
    return config


def _changed(
    config: "ChannelConfig",
    limits: dict[str, int],
    lists: dict[str, Any],
    *,
    keeps_sequence: bool,
) -> "ChannelConfig":
    """Checked as any configuration is. Raises InvalidChannelConfig."""
    from streamlog.ledger.core.channel_config import parse_config

    fields = config.model_dump(mode="json") | lists
    fields["limits"] |= limits
    if not keeps_sequence:
        fields["sequence"] += 1
    return parse_config(json.dumps(fields).encode())


def _identities(role: str, texts: list[str]) -> list[dict[str, str]]:
    found = []
    for text in filter(None, texts):
        name, equals, public_key = text.partition("=")
        if not name or not equals:
            remedy = "write NAME=PUBLICKEY, as `streamlog ledger keygen` prints it"
            raise ConfigError(f"--{role[:-1]}", f"{text!r} names no key", remedy)
        found.append({"name": name, "public_key": public_key})
    return found


def _nodes(texts: list[str]) -> list[dict[str, str | None]]:
    pairs = (text.partition("=") for text in texts if text)
    return [{"name": name, "public_key": key or None} for name, _, key in pairs]


def info(
    channel: ChannelName,
    node: AtNode = "",
    nats: o.NatsUrl = o.NATS_URL,
    creds: o.Credentials = None,
    as_json: o.Json = False,
) -> None:
    """A channel as an ordering node knows it: its height, its configuration, what is wrong."""
    found = ask(nats, creds, lambda client: client.info(channel, node=node))
    if as_json:
        print_json(found)
        return
    config: dict[str, Any] = found["config"] or {}
    limits = config.get("limits", {})
    print_pairs(
        [
            ("Channel", found["channel"]),
            ("Stream", found["stream"]),
            ("Node", f"{found['node']} ({found['role']})"),
            ("Height", found["height"]),
            ("Tip", found["tip"]),
            ("Next offset", found["next_offset"]),
            ("High watermark", found["high_watermark"]),
            ("Pending records", found["pending"]),
            ("Configuration", config.get("sequence")),
            *((name.replace("_", " ").capitalize(), value) for name, value in limits.items()),
            *(
                (
                    role.capitalize(),
                    [each["name"] for each in config.get(role, ())] or "every client",
                )
                for role in ("administrators", "writers", "readers", "consenters")
            ),
            ("Problem", found["problem"]),
        ]
    )


def verify(
    directory: Annotated[
        Path,
        typer.Argument(exists=True, metavar="DIR", help="A node's --dir, or a channel's folder."),
    ],
    channel: Annotated[
        str | None, typer.Option("--channel", help="Which one, where there are several.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a chain, every hash and record of it; no node is needed. Exit code 1 if it is wrong."""
    from streamlog.ledger.storage.folder import verify_folder

    report = verify_folder(directory, channel)
    if as_json:
        print_json(
            {
                "height": report.height,
                "tip": report.tip,
                "records": report.records,
                "configurations": report.configurations,
            }
        )
        return
    say(
        f"{report.height} blocks, {report.records} records, {report.configurations} configurations:"
        f" one chain; its last hash is {report.tip or 'none'}"
    )


def new_key(
    file: Annotated[Path, typer.Argument(help="Where the seed is, or is to be.")],
    show: Annotated[
        bool, typer.Option("--show", help="Only print the public key of one that is there.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make an Ed25519 key, readable by its owner alone, and print the public one."""
    from streamlog.ledger.core.signing import Signer

    if not show:
        _write(file, secrets.token_bytes(SEED_BYTES).hex() + "\n")
    identity = Signer(file.stem, read_seed(file)).identity
    if as_json:
        print_json(identity.model_dump())
    else:
        say(identity.public_key)


def _write(file: Path, text: str) -> None:
    try:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        remedy = "name another file, or print its public key with --show"
        raise ConfigError("FILE", f"{file} is there already", remedy) from None
    except OSError as error:
        remedy = "name a file that can be written"
        raise ConfigError("FILE", f"{file}: {error.strerror}", remedy) from None
    with os.fdopen(fd, "w") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())


app = typer.Typer(
    help="Order a stream into hash-chained blocks, the same on every node.", no_args_is_help=True
)

app.command()(serve.serve)
app.command()(broadcast)
app.command()(deliver)
app.command()(configure)
app.command()(info)
app.command()(verify)
app.command("keygen")(new_key)
