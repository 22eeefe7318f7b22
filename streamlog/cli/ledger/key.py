import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from streamlog.cli.ledger.options import SEED_BYTES, read_seed
from streamlog.cli.options.options import Json
from streamlog.cli.output import print_json, say
from streamlog.errors import ConfigError


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
