"""Which partition a message is for, in plain Python, which the compiled one
is held to.
"""

from collections.abc import Callable, Sequence

from streamlog.ingest.admission.publish_headers import key_of
from tests.oracles.collector import (
    Message,
    RecordCollector,
    header_lines,
    is_like_an_envelope,
)
from tests.oracles.keys import murmur2

EnvelopeKey = Callable[[bytes, bytes | None], bytes | None]


class Partitioner:
    """The messages of one stream, which come by the same subscription, to its partitions' inflows.

    By key: a message without one goes by its whole subject, so that all nodes agree about it
    without a word, and the messages of one subject keep their order. By tokens of the subject, of
    which the first is 1: by those together, in the order named; a token that a subject has not is
    left out.

    ``envelope_key(payload, header_key)`` is asked about what begins as an envelope does.
    """

    def __init__(
        self, *, tokens: Sequence[int] = (), envelope_key: EnvelopeKey | None = None
    ) -> None:
        self.tokens = tuple(tokens)
        """Empty: by key."""
        self.envelope_key = envelope_key
        self._inflows: list[RecordCollector | None] = []

    def share(self, inflows: Sequence[RecordCollector | None]) -> None:
        """By partition; None: its messages are none of ours."""
        self._inflows = list(inflows)

    def choose(self, message: Message) -> RecordCollector | None:
        """None: it is none of ours."""
        if not self._inflows:
            return None
        chosen = self._chosen(message)
        return self._inflows[(murmur2(chosen) & 0x7FFFFFFF) % len(self._inflows)]

    def _chosen(self, message: Message) -> bytes:
        """What is hashed."""
        subject, _, block, payload = message
        if self.tokens:
            tokens = subject.split(b".")
            return b".".join(tokens[i - 1] for i in self.tokens if i <= len(tokens))
        key = key_of(header_lines(block))
        if self.envelope_key is not None and is_like_an_envelope(payload):
            key = self.envelope_key(payload, key)
        return subject if key is None else key
