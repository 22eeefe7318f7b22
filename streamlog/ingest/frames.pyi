"""NATS messages to records, compiled.

::

    endpoint = IngestEndpoint(router)
    endpoint.subscribe(b"orders.>", collector)
    # at the end of each turn in which messages came: collector.owner.take()

A message becomes a record: its payload the value, its headers the headers, after ``subject`` and,
where the reply is not an inbox, ``reply``. The first header ``Streamlog-Key`` is the key as well.
Only a message with a header that asks for something (``Nats-*``, ``Streamlog-Ack``) costs Python
objects, for ``admit`` decides about it, unless ``checks`` know all that it asks for and all of it
holds; and one that begins as Liftbridge's envelope does, for ``open_envelope`` looks into it, unless
it is an ordinary one, which ``checks`` hold as well and ``addresses`` has a place for.

A subscription's target may be a ``Partitioner`` instead, which chooses among the collectors of several partitions.

What a publisher can put into a message is never an error of the connection: odd subjects are kept,
broken header lines left out, what is too large refused.
"""

from collections.abc import Callable, Sequence
from typing import Any

from streamlog.ingest.admission.batches.fast_run import FastRun
from streamlog.ingest.admission.publish_checks import PublishChecks
from streamlog.ingest.liftbridge.envelope_codec import AckAddresses
from streamlog.ingest.liftbridge.translate import TranslatedEnvelope
from streamlog.nats.router import Endpoint, Router, Subscription
from streamlog.record.codec import RecordRun

Counted = tuple[RecordRun, bytes] | tuple[RecordRun, bytes, bytes]
Count = Callable[[bytes, bytes, bytes, bytes], Counted | None]
Admitted = bool | RecordRun | tuple[RecordRun, bytes, bytes]
Admit = Callable[[bytes, bytes, bytes, int], Admitted]
OpenEnvelope = Callable[[bytes, bytes, bytes, bytes], TranslatedEnvelope | None]
EnvelopeKey = Callable[[bytes, bytes | None], bytes | None]
SOURCES: int

class RecordCollector:
    """What one subscription gathered since the last take. Not thread-safe; one owner.

    ``admit(header_block, subject, reply, position)`` decides about a message with a header that
    asks for something; if it says no, the message is not stored and it has seen to the answer; so
    it has where it names a run, which has room, for the message to go to: this one or another. A name
    and a value beside the run are a header that the message gets besides its own.
    ``position`` is the message's place in this one.

    ``open_envelope(payload, header_block, subject, reply)`` looks into what begins as an envelope
    of Liftbridge's does; None: it is none.

    ``keyed``: of a compacted stream. A message without a key is not stored, and one without a
    payload becomes a record without a value, which is how a key is deleted.
    """

    message_bytes_max: int
    """The message size limit (JetStream's max_msg_size): headers and payload, as NATS counts."""
    admit: Admit | None
    checks: PublishChecks | None
    """Asked before ``admit``."""
    fast: FastRun | None
    """Takes the messages of fast batches, or is asked about them; None: they are as others."""
    addresses: AckAddresses | None
    """Has ordinary envelopes opened before ``open_envelope`` is asked; wants ``checks``."""
    wish: Callable[[int, int], None] | None
    """Called with the position and the policy of a message in such an envelope, where it wants
    another ack than the stream's."""
    open_envelope: OpenEnvelope | None
    owner: Any
    """Its ``take`` takes what was gathered."""
    from_mark: int
    """Of the router's marks: a message without an id is left out if it came before this one had come back. Such
    a copy may have been under way for long, and be stored already by the leader to which it went as well.
    """
    keyed: bool
    count: Count | None
    """Of a stream of counters: ``count(header_block, subject, reply, payload)`` is asked in place of
    ``admit``, about each message. The run that it goes to, and the payload that it gets there; None:
    it is not stored. It sees to the answer.
    """
    lifetime: bytes | None
    """``admit`` sets it: in place of the ``Nats-TTL`` of the message that it admits."""
    transform: Callable[[bytes], bytes] | None
    """Makes another subject of a message's."""

    def __init__(
        self,
        *,
        message_bytes_max: int,
        admit: Admit | None = None,
        open_envelope: OpenEnvelope | None = None,
        owner: Any = None,
    ) -> None: ...
    @property
    def run(self) -> RecordRun: ...
    @property
    def reply_count(self) -> int: ...
    @property
    def enveloped(self) -> bool:
        """One of the replies is no subject, but packed ``addresses``."""

    @property
    def oversize_count(self) -> int: ...
    @property
    def keyless_count(self) -> int: ...
    def take_replies(self) -> bytes:
        """Acks wanted: repeatedly u32 offset delta, u16 length, both little-endian, reply. A reply that the
        router answers has a zero byte before it.
        """

    def take_oversize(self) -> list[bytes]:
        """The replies, b"" for none, of messages that were too large; they are not in the run."""

    def take_keyless(self) -> list[bytes]:
        """Those of messages that must have a key, and have none."""

class Partitioner:
    """The messages of one stream, which come by the same subscription, to its partitions' collectors.

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
    def share(
        self,
        collectors: Sequence[RecordCollector | None],
        own: Sequence[RecordCollector | None] | None = None,
    ) -> None:
        """By partition; None: its messages are none of ours. ``own``: of messages that the router has from this
        node's own clients, if that differs.
        """

class IngestEndpoint(Endpoint):
    """Hands messages of the router to the collectors that are subscribed, and has these taken at the end of
    the turn: all that was readable in it is one append for each partition.
    """

    def __init__(self, router: Router, *, left_out: Callable[[], None] | None = None) -> None:
        """``left_out``: called for each message that is left out, see ``from_mark``."""

    def subscribe(
        self, subject: bytes, target: RecordCollector | Partitioner, *, queue: bytes = b""
    ) -> Subscription:
        """Messages go to ``target``, or to the collector that it chooses, until the router removes the
        subscription.
        """

    def take_touched(self) -> list[RecordCollector]:
        """The collectors that got something in this turn, in the order in which they did. The end of the
        turn has the owner of each take it.
        """
