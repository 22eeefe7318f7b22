"""The keys of records, compiled: their hash, and which record is the last of its key.

A record is a length, attributes, the deltas of its time and offset, key and value, each with a
length of its own, -1 for null, and headers; all lengths and deltas are varints.
"""

from typing import Final, NamedTuple

from streamlog.record.compression import Buffer

SOURCES: int

SEED_BYTES: Final = 16

class Sifted(NamedTuple):
    """What a batch's records come to."""

    body: bytes | None
    """Of those that stay; None: all do, as they are."""
    kept: int
    tombstones: int
    """Of these so many have no value."""

class KeyOffsets:
    """The last offset of each of ``keys_max`` keys at most, of which 16 bytes of hash are kept.

    The hash depends on ``seed``: without it no client can write two keys that pass for one.
    """

    BYTES_FOR_KEY: Final = 30

    def __init__(self, keys_max: int, seed: bytes) -> None: ...
    def __len__(self) -> int: ...
    def note(self, body: Buffer, count: int, base_offset: int, from_offset: int) -> int:
        """Take in an opened batch's ``count`` records from ``from_offset`` on; -1, or the offset of
        the first for which there is no room. Raises CorruptBatch.
        """

    def sift(
        self,
        body: Buffer,
        count: int,
        base_offset: int,
        upper_offset: int,
        *,
        drop_tombstones: bool = False,
        shift_ms: int = 0,
    ) -> Sifted:
        """Leave out each record below ``upper_offset`` that is not the last of its key, and, if
        asked to, tombstones. ``shift_ms`` is added to the deltas of all times, as far as they go.

        A record without a key stays. Raises CorruptBatch.
        """

def digest(data: bytes, seed: bytes) -> bytes:
    """SipHash of 128 bits, by which keys are told apart."""

def place_of(body: Buffer, count: int, offset_delta: int) -> tuple[int, int] | None:
    """Where the record with that delta begins among an opened batch's records, and where it ends.

    None: there is none. Raises CorruptBatch.
    """

def marks_of(body: Buffer, count: int, step: int) -> bytes | None:
    """Where every ``step``-th of an opened batch's records begins, from the first one on, and where
    the last one ends: numbers of 32 bits, in the machine's order.

    None: their offsets are not dense, as after a compaction; or they are not sound.
    """

def keyless_of(body: Buffer, count: int, most: int) -> tuple[int, list[int]]:
    """How many of an opened batch's records have no key, and the places of the first ``most`` of them. Raises
    CorruptBatch.
    """

def without(body: Buffer, count: int, erased: bytes) -> Sifted:
    """Leave out those of an opened batch's records whose offset delta's bit is 1 in ``erased``; a
    bit beyond its end is 0, the lowest bit of a byte comes first. Raises CorruptBatch.
    """

def murmur2(data: bytes) -> int:
    """As Kafka's default partitioner hashes keys; 32 bits without a sign."""
