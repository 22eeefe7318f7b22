"""What a snapshot of nats-server's is made with, compiled.

HighwayHash-64 (Alakuijala, Cox, Wassenberg: "Fast keyed hash/pseudo-random function using SIMD multiply and permute",
2016) is the checksum of each message and of each file of settings. S2 is Snappy with repeated offsets and larger
blocks; what Snappy writes, S2 reads, so there is a decoder alone.
"""

from streamlog.record.compression import Buffer

SOURCES: int

class HighwayHash:
    """With one key of 32 bytes."""

    def __init__(self, key: bytes) -> None: ...
    def digest(self, data: Buffer) -> bytes:
        """8 bytes, the lowest first."""

def s2_block(data: Buffer, bytes_max: int) -> bytes:
    """What a block of S2, or of Snappy, holds. Raises CorruptData."""
