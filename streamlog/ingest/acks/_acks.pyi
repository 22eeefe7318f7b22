"""Acks, compiled."""

SOURCES: int

def build_acks(replies: bytes, head: bytes, base_offset: int) -> bytes:
    """A publication of a positive ack for each packed reply; its ``seq`` is the offset + 1.

    ``head`` is what stands before it, of ``acks.ack_head``.
    """

def build_refusals(replies: bytes, payload: bytes) -> bytes:
    """A publication of the same ``payload`` for each packed reply."""
