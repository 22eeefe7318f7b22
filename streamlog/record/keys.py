"""The hash of keys, and which record is the last of its key: compiled, else its plain twin."""

from typing import TYPE_CHECKING

from streamlog.record import fallback

if TYPE_CHECKING:
    from streamlog.record._keys_plain import KeyOffsets, first_keyless, murmur2, place_of, without
else:
    try:
        from streamlog.record._keys import KeyOffsets, first_keyless, murmur2, place_of, without
    except ImportError:
        fallback.warn()
        from streamlog.record._keys_plain import (
            KeyOffsets,
            first_keyless,
            murmur2,
            place_of,
            without,
        )

__all__ = ["KeyOffsets", "first_keyless", "murmur2", "place_of", "without"]
