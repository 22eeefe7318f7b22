"""Which partition a message is for, compiled."""

from collections.abc import Callable, Sequence

from streamlog.ingest.parser._collector import RecordCollector

EnvelopeKey = Callable[[bytes, bytes | None], bytes | None]
SOURCES: int

class Partitioner:
    """The messages of one stream, which come by the same subscription, to its partitions' inflows.

    By key: a message without one goes by its whole subject, so that all nodes agree about it
    without a word, and the messages of one subject keep their order. By tokens of the subject, of
    which the first is 1: by those together, in the order named; a token that a subject has not is
    left out.

    ``envelope_key(payload, header_key)`` is asked about what begins as an envelope does.
    """

    tokens: tuple[int, ...]
    """Empty: by key."""
    envelope_key: EnvelopeKey | None

    def __init__(
        self, *, tokens: Sequence[int] = (), envelope_key: EnvelopeKey | None = None
    ) -> None: ...
    def share(self, inflows: Sequence[RecordCollector | None]) -> None:
        """By partition; None: its messages are none of ours."""
