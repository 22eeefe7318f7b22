"""PLAIN: user and password as they are (RFC 4616). Only for where no third party listens."""

from typing import Final, NamedTuple

from streamlog.errors import AuthenticationFailed

FIELD_BYTES_MAX: Final = 255


class UserPassword(NamedTuple):
    """What a message of PLAIN says."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"<password of {self.user!r}>"


def read_message(message: bytes) -> UserPassword:
    """Raises AuthenticationFailed."""
    try:
        fields = [it.decode() for it in message.split(b"\0") if len(it) <= FIELD_BYTES_MAX]
    except UnicodeDecodeError:
        fields = []
    match fields:
        case [authzid, user, password] if user and password:
            if authzid not in ("", user):
                raise AuthenticationFailed("to act as another user is not supported")
            return UserPassword(user, password)
    raise AuthenticationFailed("a malformed PLAIN message")


def encode_message(user: str, password: str) -> bytes:
    return f"\0{user}\0{password}".encode()
