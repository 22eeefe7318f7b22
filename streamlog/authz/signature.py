"""Who asks over NATS: requests signed with an NKey.

NATS does not tell a client who published a message. A user who wants to be known signs the request:
the headers ``Streamlog-Nkey`` (the public key of an NKey user), ``Streamlog-Time`` (milliseconds
since 1970), ``Streamlog-Nonce`` (16 to 64 characters, never the same twice), ``Streamlog-Reply``
(the reply subject) and ``Streamlog-Signature`` (Ed25519, base64url without padding) over what
``signed_text`` says. A request counts for a while before and after its time. That of a known key
counts once: its nonce is remembered so long. A key is known where some rule or setting names it.
Any client can make other keys, and may do with them what all clients may. To repeat such a request gains
nothing, and its nonce is not remembered, so that no client fills the memory with keys of its own.

The reply subject is signed, so that a subscriber to the API's subjects cannot send a copy with a
reply subject of its own, and be answered in the sender's place.
"""

import base64
import binascii
import hashlib
import secrets
from collections.abc import Callable, Mapping
from typing import Final

from streamlog.authn.nkey import NkeyKind, is_signed_by
from streamlog.authn.nonces import Nonces
from streamlog.clock import wall_ms
from streamlog.errors import AuthenticationFailed

KEY: Final = "Streamlog-Nkey"
TIME: Final = "Streamlog-Time"
NONCE: Final = "Streamlog-Nonce"
REPLY: Final = "Streamlog-Reply"
SIGNATURE: Final = "Streamlog-Signature"

NONCE_CHARS: Final = range(16, 65)

_HEAD: Final = b"streamlog-request-2"


def signed_text(
    subject: str, payload: bytes, time_ms: str, nonce: str, *, reply: str = ""
) -> bytes:
    """Lines: a fixed word, the subject, the reply subject, the time, the nonce, SHA-256 of the
    payload in hex.
    """
    digest = hashlib.sha256(payload).hexdigest()
    return _HEAD + "".join(f"\n{it}" for it in (subject, reply, time_ms, nonce, digest)).encode()


def sign(
    who: Mapping[str, str],
    subject: str,
    payload: bytes,
    signature: Callable[[bytes], bytes],
    *,
    now_ms: int,
    reply: str = "",
) -> dict[str, str]:
    """The headers of a request. ``who``: the one that tells the key; ``reply``: where the answer is
    to go.
    """
    time_ms, nonce = str(now_ms), secrets.token_urlsafe(18)
    text = signed_text(subject, payload, time_ms, nonce, reply=reply)
    where = {REPLY: reply} if reply else {}
    return {**who, TIME: time_ms, NONCE: nonce, **where, SIGNATURE: _encoded(signature(text))}


class RequestVerifier:
    """Looks at signatures, and remembers nonces. Raises AuthenticationFailed."""

    def __init__(
        self,
        window_ms: int,
        now_ms: Callable[[], int] = wall_ms,
        *,
        checks_reply: bool = True,
    ) -> None:
        """``checks_reply``: a request counts with the reply subject that it was signed with."""
        self._window_ms = window_ms
        self._now_ms = now_ms
        self._checks_reply = checks_reply
        self._nonces = Nonces()

    def user(
        self,
        subject: str,
        payload: bytes,
        headers: Mapping[str, str],
        is_known: Callable[[str], bool] = lambda _: True,
        *,
        reply: str = "",
    ) -> str:
        """The public key of the signer. ``reply``: where an answer would go."""
        key = headers[KEY]
        text = self._text(subject, payload, headers, reply)
        if self._nonces.has(key, headers[NONCE]):  # cheaper than the signature
            raise AuthenticationFailed("the nonce has been used")
        if not is_signed_by(key, NkeyKind.USER, text, _decoded(headers[SIGNATURE])):
            raise AuthenticationFailed("the signature is not this key's over this request")
        if is_known(key):
            self._remember(key, headers[NONCE])
        return key

    def _text(self, subject: str, payload: bytes, headers: Mapping[str, str], reply: str) -> bytes:
        missing = [name for name in (TIME, NONCE, SIGNATURE) if not headers.get(name)]
        if missing:
            raise AuthenticationFailed(f"a signed request needs the header {missing[0]}")
        time_ms, nonce = headers[TIME], headers[NONCE]
        if not (time_ms.isascii() and time_ms.isdigit() and len(time_ms) <= 16):
            raise AuthenticationFailed(f"{TIME} is no number of milliseconds")
        ago_ms = self._now_ms() - int(time_ms)
        if abs(ago_ms) > self._window_ms:
            text = f"signed {ago_ms} ms ago: at most {self._window_ms} either way; look at clocks"
            raise AuthenticationFailed(text)
        if len(nonce) not in NONCE_CHARS:
            raise AuthenticationFailed("the nonce is too short or too long")
        signed_reply = headers.get(REPLY, "")
        if self._checks_reply and signed_reply != reply:
            raise AuthenticationFailed(
                f"the header {REPLY}, which is signed, has to name the request's reply subject;"
                " where NATS changes these on their way, see authorization.check_reply_subject"
            )
        return signed_text(subject, payload, time_ms, nonce, reply=signed_reply)

    def _remember(self, signer: str, nonce: str) -> None:
        """After the signature was found right: no other client fills the memory."""
        now_ms = self._now_ms()
        until_ms = now_ms + 2 * self._window_ms
        if refusal := self._nonces.spend(signer, nonce, until_ms=until_ms, now_ms=now_ms):
            raise AuthenticationFailed(refusal)


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        raise AuthenticationFailed("the signature is not base64url") from None
