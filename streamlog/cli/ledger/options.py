"""What the commands have in common."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from streamlog.cli.options.nats_options import nats_settings
from streamlog.errors import ConfigError

if TYPE_CHECKING:
    from streamlog.ledger.api import LedgerClient
    from streamlog.ledger.core.signing import Signer

ChannelName = Annotated[str, typer.Option("--channel", help="The channel's name.")]
AtNode = Annotated[
    str, typer.Option("--node", help="Ask this ordering node; default: any that serves it.")
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key", metavar="FILE", help="Sign with this Ed25519 seed; see `streamlog ledger keygen`."
    ),
]
SignerName = Annotated[
    str | None, typer.Option("--name", help="With --key: as whom. Default: the file's name.")
]

SEED_BYTES = 32

T = TypeVar("T")


def limits_of(
    batch_size: int | None,
    batch_timeout_ms: int | None,
    preferred_max_bytes: int | None,
    absolute_max_bytes: int | None,
) -> dict[str, int]:
    """Those of a channel's blocks that are given, by their names in its configuration."""
    given = {
        "batch_size": batch_size,
        "batch_timeout_ms": batch_timeout_ms,
        "preferred_max_bytes": preferred_max_bytes,
        "absolute_max_bytes": absolute_max_bytes,
    }
    return {name: value for name, value in given.items() if value is not None}


def signer_of(key: Path | None, name: str | None) -> "Signer | None":
    """Raises ConfigError."""
    if key is None:
        if name is not None:
            raise ConfigError("--name", "there is no key to sign with", "give --key FILE as well")
        return None
    from streamlog.ledger.core.signing import Signer

    return Signer(name or key.stem, read_seed(key))


def read_seed(path: Path) -> bytes:
    """Of a key file, which has the seed in hexadecimal. Raises ConfigError; never shows it."""
    try:
        seed = bytes.fromhex(path.read_text("ascii").strip())
    except OSError as error:
        remedy = "make one by `streamlog ledger keygen FILE`"
        raise ConfigError("--key", f"{path}: {error.strerror}", remedy) from None
    except ValueError:
        seed = b""
    if len(seed) != SEED_BYTES:
        problem = f"{path} is no Ed25519 seed (64 hexadecimal digits)"
        raise ConfigError("--key", problem, "make one by `streamlog ledger keygen FILE`")
    return seed


def ask(
    nats: str,
    creds: str | None,
    question: "Callable[[LedgerClient], Awaitable[T]]",
    *,
    signer: "Signer | None" = None,
) -> T:
    """What ``question`` finds out from the ledger's nodes."""
    from streamlog.ledger.api import LedgerClient

    async def asked() -> T:
        async with LedgerClient(nats_settings(nats, creds), signer=signer) as client:
            return await question(client)

    return asyncio.run(asked())
