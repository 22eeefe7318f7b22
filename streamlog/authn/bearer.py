"""OAUTHBEARER: a token that another party has signed (RFC 7628)."""

import json
import re
from typing import Final

from streamlog.errors import AuthenticationFailed

MESSAGE_BYTES_MAX: Final = 32 * 1024
_SEPARATOR: Final = b"\x01"
_TOKEN: Final = re.compile(rb"bearer +([-A-Za-z0-9._~+/]+=*)", re.IGNORECASE)
REFUSAL: Final = json.dumps({"status": "invalid_token"}).encode()
"""What a node answers before the login fails; the client answers with GIVEN_UP."""
GIVEN_UP: Final = _SEPARATOR


def read_message(message: bytes) -> str:
    """The token. Extensions are passed over, as RFC 7628 has it. Raises AuthenticationFailed."""
    malformed = AuthenticationFailed("a malformed OAUTHBEARER message")
    if len(message) > MESSAGE_BYTES_MAX:
        raise malformed
    header, *pairs = message.split(_SEPARATOR)
    if len(pairs) < 3 or pairs[-2:] != [b"", b""]:  # it ends in two separators
        raise malformed
    match header.split(b","):
        case [b"n" | b"y", b"", b""]:
            pass
        case [b"n" | b"y", authzid, b""] if authzid.startswith(b"a="):
            raise AuthenticationFailed("to act as another user is not supported")
        case _:
            raise malformed
    values = [value for key, _, value in (it.partition(b"=") for it in pairs) if key == b"auth"]
    found = _TOKEN.fullmatch(values[0]) if len(values) == 1 else None
    if found is None:
        raise malformed
    return found[1].decode()


def encode_message(token: str) -> bytes:
    return b"n,,\x01auth=Bearer %b\x01\x01" % token.encode()
