"""Which partition of ``__consumer_offsets`` a group's records go to. Pure.

As Kafka does: Java's ``String.hashCode`` of the group's name, without its sign, modulo the number
of partitions.
"""

from typing import Final

_SMALLEST: Final = -(1 << 31)


def java_hash(text: str) -> int:
    """``String.hashCode``: over UTF-16 code units, in 32 bits with a sign."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[position : position + 2], "big")) & 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value


def partition_of(group: str, partitions: int) -> int:
    """``Utils.abs(hash) % partitions``, where the smallest number of all counts as 0."""
    hashed = java_hash(group)
    return (0 if hashed == _SMALLEST else abs(hashed)) % partitions
