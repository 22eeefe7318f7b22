"""A Produce request for one partition, and its answer, compiled.

Most requests of most producers are such. Of a request with one record, which is what a producer with ``linger.ms=0``
sends, to read it and to write its answer is most of the cost. ``produce`` reads and writes the same in Python, and
tests hold this module to it. Whatever is not plain is left to ``produce``: several partitions, a transaction, a
producer that wants no answer, tagged fields, and all that is malformed or unknown.
"""

from typing import final

SOURCES: int

@final
class SingleProduce:
    """One partition's records, of versions 3 to 13 with acks of 1 or -1; ``client_id`` is empty where there is none."""

    version: int
    correlation_id: int
    client_id: str
    acks: int
    timeout_ms: int
    topic: str | bytes
    """Up to version 12 a name, from 13 on an id."""
    partition: int
    records: memoryview
    """A view into the request; not empty."""

    def release_records(self) -> None:
        """They are written: the answer may wait for long, and must not keep the request in memory meanwhile."""

    def encode_answer(self, base_offset: int, log_start_offset: int, append_time_ms: int) -> bytes:
        """The whole frame that tells of success, without a throttle time."""

def read_single_produce(request: bytes) -> SingleProduce | None:
    """``request``: a frame without its length. None: it is no such request, or not a well-formed one."""
