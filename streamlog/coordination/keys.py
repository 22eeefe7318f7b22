"""A coordinator's key: the name of a group, or a transactional id; the partition of the internal stream
that its records are in. Pure.

As in Kafka that is Java's ``String.hashCode`` of the key, without its sign, modulo the number of partitions.
"""

import struct
from typing import Final

KEY_BYTES_MAX: Final = 4096
"""Of a key, and of whatever else clients name: member, instance, protocol."""
_SMALLEST: Final = -(1 << 31)


def is_key(text: str) -> bool:
    return 0 < len(text.encode()) <= KEY_BYTES_MAX


def java_hash(text: str) -> int:
    """``String.hashCode``: over UTF-16 code units, in 32 bits with a sign."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for unit in struct.unpack(f">{len(data) // 2}H", data):
        value = (31 * value + unit) & 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value


def partition_of(key: str, partitions: int) -> int:
    """``Utils.abs(hash) % partitions``, where the smallest number of all counts as 0."""
    hashed = java_hash(key)
    return (0 if hashed == _SMALLEST else abs(hashed)) % partitions
