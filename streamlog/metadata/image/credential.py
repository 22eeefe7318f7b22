"""What the metadata keeps of users' passwords: credentials of SCRAM, as text. Pure."""

from base64 import b64decode, b64encode
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field

from streamlog.authn.principal import ANONYMOUS
from streamlog.authn.scram import ITERATIONS_MAX, ITERATIONS_MIN, Credential, Scram
from streamlog.errors import InvalidRequest
from streamlog.model import ScramName

USERS_MAX: Final = 10_000
USER_CHARS_MAX: Final = 255

UserName = Annotated[str, Field(min_length=1, max_length=USER_CHARS_MAX)]
Bytes = Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]+={0,2}$", max_length=256)]
"""In base64."""


class StoredCredential(BaseModel):
    """Of one user, for one mechanism; see ``authn.scram.Credential``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    salt: Bytes
    iterations: Annotated[int, Field(ge=ITERATIONS_MIN, le=ITERATIONS_MAX)]
    stored_key: Bytes
    server_key: Bytes

    @classmethod
    def of(cls, credential: Credential) -> Self:
        return cls(
            salt=b64encode(credential.salt).decode(),
            iterations=credential.iterations,
            stored_key=b64encode(credential.stored_key).decode(),
            server_key=b64encode(credential.server_key).decode(),
        )

    @property
    def credential(self) -> Credential:
        return Credential(
            b64decode(self.salt),
            self.iterations,
            b64decode(self.stored_key),
            b64decode(self.server_key),
        )

    def __repr__(self) -> str:
        return f"<credential of {self.iterations} iterations>"

    __str__ = __repr__


Credentials = dict[ScramName, StoredCredential]
"""All of a user's, by mechanism."""


def check_user_name(name: str) -> None:
    """Raises InvalidRequest."""
    if not 0 < len(name) <= USER_CHARS_MAX:
        raise InvalidRequest(f"a user's name has 1 to {USER_CHARS_MAX} characters")
    if not name.isprintable() or name != name.strip():
        raise InvalidRequest("a user's name has no control characters, nor spaces around it")
    if name == ANONYMOUS.name:
        raise InvalidRequest(
            f"{name} stands for clients that have not logged in; choose another name"
        )


def check_size(scram: Scram, credential: Credential) -> None:
    """Raises InvalidRequest where it cannot be this mechanism's."""
    sizes = {len(credential.stored_key), len(credential.server_key)}
    if sizes != {scram.size_bytes}:
        raise InvalidRequest(f"a key of {scram.value} has {scram.size_bytes} bytes")
