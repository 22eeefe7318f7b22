"""Acknowledgements: the reply subject of a delivered message, and what a client says there. Pure.

Stock clients read the count, the sequences, the time and the number of pending messages in the subject, which has
nats-server's first format. (It has a second one, with a domain, but nats-py's ordered consumers read only the first.)

    $JS.ACK.<stream>.<consumer>.<count>.<stream seq>.<consumer seq>.<ns>.<pending>

Records have times in milliseconds. The rest of the nanoseconds has the partition and a mark, 100 · partition + mark.
The mark is the consumer's: a nats-server of the same account may have a stream and a consumer of the same names, and
an acknowledgement that is meant for one of the two must not count at the other. The same holds for a consumer that is
made again under its name.
"""

from enum import Enum, auto
from typing import Final, NamedTuple

from streamlog.jetstream.consumers.go_duration import ms_of, read_go_text
from streamlog.jetstream.errors import ApiRefused
from streamlog.jetstream.requests.request_schemas import NAK
from streamlog.jetstream.requests.schema import WrongType, read_json

MARKS: Final = 100
"""Different marks."""
PARTITIONS_MAX: Final = 10_000
MS_NS: Final = 1_000_000
REASON_BYTES_MAX: Final = 1024
"""A longer reason is cut; advisories tell it."""
_TOKENS: Final = 9
_LATEST_MS: Final = (2**63 - 1) // MS_NS - 1
_DIGITS_MAX: Final = 20
"""Of a number of 64 bits."""


class AckKind(Enum):
    """What is to become of the message."""

    ACK = auto()
    NAK = auto()
    """Deliver it again, perhaps later."""
    PROGRESS = auto()
    """The client still works on it: its time begins again."""
    NEXT = auto()
    """It is done; and a pull request."""
    TERM = auto()
    """Do not deliver it again."""


class Ack(NamedTuple):
    """One acknowledgement."""

    kind: AckKind
    delay_ms: int = 0
    """Of NAK."""
    reason: str = ""
    """Of TERM."""
    next_request: bytes = b""
    """Of NEXT: a pull request's body."""


_ACK: Final = Ack(AckKind.ACK)
_ACKS: Final = frozenset((b"", b"+ACK", b"+OK"))


def read_ack(payload: bytes) -> Ack | None:
    """None: nonsense, which changes nothing. nats-server still answers it if the client waits."""
    if payload in _ACKS:
        return _ACK
    if payload.startswith(b"+NXT"):
        return Ack(AckKind.NEXT, next_request=payload[4:])
    if payload.startswith(b"-NAK"):
        return Ack(AckKind.NAK, delay_ms=_delay_ms(payload[4:].strip()))
    if payload == b"+WPI":
        return Ack(AckKind.PROGRESS)
    if payload.startswith(b"+TERM"):
        reason = payload[5:].strip()[:REASON_BYTES_MAX]
        return Ack(AckKind.TERM, reason=reason.decode(errors="replace"))
    return None


def _delay_ms(argument: bytes) -> int:
    """JSON, or a duration as Go writes it; 0 for what is neither, as nats-server takes it."""
    if argument.startswith(b"{"):
        try:
            delay_ns: int | None = NAK.read(read_json(argument), strict=False).get("delay")
        except (ApiRefused, WrongType):
            return 0
    else:
        delay_ns = read_go_text(argument.decode(errors="replace"))
    return max(0, ms_of(delay_ns or 0))


class FlowAnswer(NamedTuple):
    """What an answer to flow control says: everything up to these sequences is kept by its client."""

    consumer_sequence: int
    stream_sequence: int


NO_ANSWER: Final = FlowAnswer(0, 0)


def read_flow_answer(block: bytes) -> FlowAnswer:
    """``block``: the header block of the answer. Zeros: it acknowledges nothing."""
    if not block:
        return NO_ANSWER
    found = dict[bytes, int]()
    for line in block.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        value = value.strip(b" ")
        if colon and value.isdigit() and len(value) <= _DIGITS_MAX:
            found[name] = int(value)
    return FlowAnswer(found.get(b"Nats-Last-Consumer", 0), found.get(b"Nats-Last-Stream", 0))


class AckSubject(NamedTuple):
    """What a message's reply subject says of it."""

    stream: str
    consumer: str
    count: int  # type: ignore[assignment]  # of a tuple it is a method, which none needs here
    """How often it was delivered."""
    stream_sequence: int
    consumer_sequence: int
    timestamp_ms: int
    """Of the record."""
    pending: int
    """How many messages match after it."""
    partition: int
    mark: int

    def subject(self) -> str:
        """``read_ack_subject`` reads it again."""
        return (
            f"$JS.ACK.{self.stream}.{self.consumer}.{self.count}.{self.stream_sequence}.{self.consumer_sequence}"
            f".{ack_time_ns(self.timestamp_ms, self.partition, self.mark)}.{self.pending}"
        )


def ack_time_ns(timestamp_ms: int, partition: int, mark: int) -> int:
    """Of a record in a reply subject. A Kafka producer chooses the time: the nearest one that clients can read counts,
    which have 64 bits for it.
    """
    return min(max(timestamp_ms, 0), _LATEST_MS) * MS_NS + partition * MARKS + mark


def mark_of(created_ms: int) -> int:
    """Of a consumer that was made then."""
    return created_ms % MARKS


def read_ack_subject(subject: str) -> AckSubject | None:
    """None: not one of ours."""
    tokens = subject.split(".")
    if len(tokens) != _TOKENS or tokens[0] != "$JS" or tokens[1] != "ACK":
        return None
    _, _, stream, consumer, *numbers = tokens
    if not (stream and consumer):
        return None
    for number in numbers:
        if not (number.isdigit() and number.isascii() and len(number) <= _DIGITS_MAX):
            return None
    count, stream_sequence, consumer_sequence, time_ns, pending = map(int, numbers)
    timestamp_ms, rest = divmod(time_ns, MS_NS)
    partition, mark = divmod(rest, MARKS)
    return AckSubject(
        stream,
        consumer,
        count,
        stream_sequence,
        consumer_sequence,
        timestamp_ms,
        pending,
        partition,
        mark,
    )
