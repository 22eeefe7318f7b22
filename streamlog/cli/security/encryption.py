"""``streamlog encryption``: keys of encrypted streams."""

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamlog.cli.options.options import Json
from streamlog.cli.output import print_json, print_table, say
from streamlog.errors import InvalidRequest

if TYPE_CHECKING:
    from streamlog.log.encryption.inventory import FoundKeys

app = typer.Typer(help="Make keys for encrypted streams, and see what needs which.")


@app.command("keygen")
def new_key(
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="Must not be there yet; - for standard output.")
    ],
) -> None:
    """Write 32 random bytes, in base64, to a file that only this user may read.

    Without it, data that is encrypted by it is lost: keep a copy where the disks are not.
    """
    import base64
    import secrets

    text = base64.b64encode(secrets.token_bytes(32)) + b"\n"
    if str(path) == "-":
        say(text.decode(), end="")
        return
    try:
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(opened, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise InvalidRequest(f"{path} is there already; a key is never written over") from None
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror or error}") from None
    say(f"{path}: a new key; keep a copy of it where the disks are not")


@app.command("status")
def status(
    path: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Of a node, a stream or a partition.")
    ],
    as_json: Json = False,
) -> None:
    """Tell by which keys the segments in a folder are encrypted; a node may be running on it.

    A key that no line names any more, on no node and in no backup, is needed no more.
    """
    from streamlog.log.encryption.inventory import data_keys

    if not path.is_dir():
        raise InvalidRequest(f"{path}: no folder")
    found = list(data_keys(path))
    damaged = [it for it in found if it.key_name is None]
    if as_json:
        print_json({"keys": _counts(found), "damaged": [str(it.file) for it in damaged]})
    else:
        print_table(("KEY", "SEGMENTS"), sorted(_counts(found).items()))
        for it in damaged:
            say(f"{it.file}: damaged; its segment cannot be read, unless another node has it")
    if damaged:
        raise typer.Exit(1)


def _counts(found: "list[FoundKeys]") -> dict[str, int]:
    return dict(Counter(it.key_name for it in found if it.key_name is not None))
