"""Signed requests that have been carried out, as the controller remembers them. Pure.

Any node answers a signed request, so each of them asks the controller, which there is one of. What
it remembers ends with its office: whatever was signed before that is to be signed anew.
"""

from streamlog.authn.nonces import Nonces


class NonceCache:
    """Times are of the wall, in ms since 1970, for they are told by others, too."""

    def __init__(self) -> None:
        self._since_ms = 0
        self._nonces = Nonces()

    def begin(self, now_ms: int) -> None:
        """An office begins: what others have remembered is not known."""
        self._since_ms = now_ms
        self._nonces.clear()

    def spend(self, signer: str, nonce: str, *, signed_ms: int, window_ms: int, now_ms: int) -> str:
        """Why it does not count; empty: it does, this once. ``window_ms``: either way of now."""
        if signed_ms < self._since_ms:
            return "it was signed before the present controller took office: sign it anew"
        until_ms = now_ms + 2 * window_ms
        return self._nonces.spend(signer, nonce, until_ms=until_ms, now_ms=now_ms)
