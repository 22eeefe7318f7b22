import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from streamlog.cli.ledger.options import AtNode, ChannelName, KeyFile, SignerName, ask, signer_of
from streamlog.cli.messages.record_lines import json_line
from streamlog.cli.options import options as o
from streamlog.cli.output import print_json, write_value
from streamlog.errors import ConfigError

if TYPE_CHECKING:
    from streamlog.ledger.api import LedgerClient
    from streamlog.ledger.assembly import DeliveredBlock


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
            sys.stdout.buffer.write(json_line(0, record).encode() + b"\n")
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
