"""A file of users for the first start: who can add a user before there is one?

One JSON object a line, as the metadata log has it. It holds credentials, not passwords.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from streamlog.errors import ConfigError
from streamlog.metadata.image.credential import Credentials
from streamlog.metadata.image.records import UserChanged

KEY: Final = "sasl.bootstrap_file"
FILE_BYTES_MAX: Final = 1 << 20


def read_bootstrap_users(path: Path) -> Mapping[str, Credentials]:
    """By name. Raises ConfigError."""
    remedy = "make it with: streamlog user add NAME --bootstrap FILE"
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(KEY, f"{path} cannot be read ({error.strerror})", remedy) from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(KEY, f"{path} has more than {FILE_BYTES_MAX} bytes", remedy)
    users = {}
    for number, line in enumerate(filter(None, data.splitlines()), 1):
        try:
            user = UserChanged.model_validate_json(line)
        except ValidationError:  # its text would show what is in the line
            raise ConfigError(KEY, f"{path}: line {number} is no user", remedy) from None
        users[user.name] = user.credentials
    return users


def add_bootstrap_user(path: Path, name: str, credentials: Credentials) -> None:
    """In place of one of that name. Only the owner may read the file. Raises ConfigError."""
    users = {**(read_bootstrap_users(path) if path.exists() else {}), name: credentials}
    lines = (UserChanged(name=it, credentials=users[it]).model_dump_json() for it in sorted(users))
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.unlink(missing_ok=True)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write("".join(f"{line}\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        problem = f"{path} cannot be written ({error.strerror})"
        raise ConfigError("--bootstrap", problem, "name a file in a folder of yours") from None
