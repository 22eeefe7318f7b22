"""The body of a consumer's Fetch request, compiled.

A consumer that waits at the end of a topic sends such a request for each record that comes. ``fetch`` reads the same in
Python, and tests hold this module to it. Whatever is not plain is left to ``fetch``: what replicas tell, topics to be
forgotten, tagged fields, versions before 12, and all that is malformed.
"""

SOURCES: int

PlainPartition = tuple[int, int, int, int, int, int]
PlainTopic = tuple[str, list[PlainPartition], bytes]

def read_plain_fetch(
    data: bytes | bytearray | memoryview, position: int, version: int
) -> tuple[int, int, int, int, int, int, list[PlainTopic], str] | None:
    """The body that begins at ``position`` and ends with ``data``: max_wait_ms, min_bytes, max_bytes, isolation level,
    session id and epoch, topics, rack id; of a partition its number, fetch offset, max_bytes, current and last leader
    epoch and log start. None: it is no such body.
    """
