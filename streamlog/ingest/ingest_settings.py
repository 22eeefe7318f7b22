"""What a partition ingest needs to know of how its stream is set."""

from collections.abc import Callable
from typing import NamedTuple

from streamlog.ingest.admission.message_ttl import Lifetimes
from streamlog.ingest.admission.publish_headers import AckPolicy
from streamlog.ingest.admission.refusal import PublishRefusal
from streamlog.ingest.schedules.scheduling_rules import SchedulingRules


class IngestSettings(NamedTuple):
    """From the next message on."""

    message_bytes_max: int
    """Of headers and payload together, as NATS counts."""
    default_ack: AckPolicy = AckPolicy.COMMITTED
    answering: bool = True
    """False: a stream with ``no_ack``, which never says a word."""
    keyed: bool = False
    """Of a compacted stream: each message must have a key."""
    bounded: bool = False
    """Of a stream with ``discard=new``."""
    batches: bool = False
    """Atomic batches are taken."""
    fast_batches: bool = False
    lifetimes: Lifetimes = Lifetimes.NONE
    lifetime_min_s: int = 0
    """A shorter lifetime becomes so long."""
    counters: bool = False
    """Each message adds to the value of its subject."""
    schedules: SchedulingRules | None = None
    """Messages may be published later."""
    rollups: bool = False
    """Messages may have others go."""
    transform: Callable[[bytes], bytes] | None = None
    """Makes another subject of a message's."""
    shut: PublishRefusal | None = None
    """Why nothing at all is stored, if so."""
