import os
from collections.abc import Mapping
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from streamlog.errors import BrokenInvariant, EncryptionKeyMissing
from streamlog.log.encryption.cipher import NONCE_BYTES
from streamlog.log.encryption.key_file import NO_SCOPE, WrappedKey

KEY_BYTES: Final = 32
_PURPOSE: Final = b"streamlog data key 1 "


class KeyRing:
    """The keys by which data keys are encrypted. From any thread.

    The ``active`` one is for new data keys; all of them open old ones. They may be replaced at any
    time: what was opened before stays open.
    """

    __slots__ = ("_state",)

    def __init__(self, keys: Mapping[str, bytes] | None = None, active: str | None = None) -> None:
        """``keys``: 32 bytes each, by name; ``active`` is one of them, or None."""
        self.replace(keys or {}, active)

    def replace(self, keys: Mapping[str, bytes], active: str | None) -> None:
        if active is not None and active not in keys:
            raise BrokenInvariant(f"there is no key {active}")
        if not all(len(key) == KEY_BYTES for key in keys.values()):
            raise BrokenInvariant(f"a key has {KEY_BYTES} bytes")
        self._state = {name: AESGCM(key) for name, key in keys.items()}, active

    @property
    def active(self) -> str | None:
        return self._state[1]

    @property
    def names(self) -> list[str]:
        return sorted(self._state[0])

    def require(self) -> None:
        """Raises EncryptionKeyMissing where nothing can be encrypted."""
        if self.active is None:
            raise EncryptionKeyMissing(
                "the stream is encrypted and this node has no key to encrypt by; name one as"
                " encryption.active_key"
            )

    def new_data_key(self, since: int = 0, scope: str = NO_SCOPE) -> tuple[bytes, WrappedKey]:
        """32 random bytes, and the same for the disk; see ``WrappedKey``. Raises
        EncryptionKeyMissing.
        """
        data_key = AESGCM.generate_key(bit_length=8 * KEY_BYTES)
        return data_key, self.wrapped(data_key, since, scope)

    def wrapped(self, data_key: bytes, since: int = 0, scope: str = NO_SCOPE) -> WrappedKey:
        """By the active key. Raises EncryptionKeyMissing."""
        keys, active = self._state
        if active is None:
            self.require()
        assert active is not None
        nonce = os.urandom(NONCE_BYTES)
        sealed = keys[active].encrypt(nonce, data_key, _bound(active, since, scope))
        return WrappedKey(active, nonce + sealed, since, scope)

    def unwrapped(self, key: WrappedKey, path: str) -> bytes:
        """The data key that stands in the file at ``path``.

        Raises EncryptionKeyMissing if its key is not among these, or is another one of that name.
        """
        found = self._state[0].get(key.key_name)
        if found is None:
            raise EncryptionKeyMissing(
                f"{path} needs the key {key.key_name!r}, which is not among encryption.keys"
                f" ({', '.join(self.names) or 'there are none'})"
            )
        nonce, sealed = key.wrapped[:NONCE_BYTES], key.wrapped[NONCE_BYTES:]
        try:
            return found.decrypt(nonce, sealed, _bound(key.key_name, key.since, key.scope))
        except InvalidTag:
            raise EncryptionKeyMissing(
                f"{path} does not open with the key {key.key_name!r}: another one had that name"
                " when it was written, or the file was changed"
            ) from None


def _bound(key_name: str, since: int, scope: str) -> bytes:
    """What the tag covers beside the data key."""
    return _PURPOSE + f"{key_name} of {scope} since {since}".encode()
