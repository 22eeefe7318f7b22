import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamlog.cli.ledger.options import (
    AtNode,
    ChannelName,
    KeyFile,
    SignerName,
    ask,
    limits_of,
    signer_of,
)
from streamlog.cli.options import options as o
from streamlog.cli.output import print_json, say
from streamlog.errors import ConfigError

if TYPE_CHECKING:
    from streamlog.ledger.api import LedgerClient
    from streamlog.ledger.broadcast import BroadcastAck
    from streamlog.ledger.core.channel_config import ChannelConfig

_ROLES = ("administrators", "writers", "readers")


def configure(
    channel: ChannelName,
    file: Annotated[
        Path | None,
        typer.Option(help="The whole configuration as JSON, its sequence one more than before."),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Records in a block.")] = None,
    batch_timeout_ms: Annotated[
        int | None, typer.Option(help="From a block's first record until it is cut as it is.")
    ] = None,
    preferred_max_bytes: Annotated[int | None, typer.Option(help="Of a block.")] = None,
    absolute_max_bytes: Annotated[int | None, typer.Option(help="Of a record.")] = None,
    administrator: Annotated[
        list[str] | None,
        typer.Option(help="NAME=PUBLICKEY; may be repeated. These and no others; '' for none."),
    ] = None,
    writer: Annotated[list[str] | None, typer.Option(help="Likewise.")] = None,
    reader: Annotated[list[str] | None, typer.Option(help="Likewise.")] = None,
    consenter: Annotated[
        list[str] | None, typer.Option(help="NAME or NAME=PUBLICKEY; likewise.")
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
