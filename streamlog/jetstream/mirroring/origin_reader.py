"""One source of a stream as a reader of its origin's JetStream API: a state machine. Pure.

The reader has the origin make an ephemeral push consumer (CONSUMER.CREATE), which delivers to an inbox from the
position on: without acknowledgements, with flow control and heartbeats, as JetStream's own mirrors do. So any
JetStream can be an origin, nats-server's or another cluster's.

**Nothing is missed, nothing comes twice.** The consumer numbers what it delivers, 1, 2, 3, ... A message with the next
number is handed on, and moves the position to its sequence. A number that is too high, or a heartbeat that tells of a
later one, shows a loss: the consumer is given up, and another one begins behind the position. A number that was there
already is a double, and is left out. Each consumer delivers to an inbox of its own, so what is late of an earlier one
is lost. The position is that of the messages that were handed on, in order; where they cannot be stored, the
owner makes another reader with the position that the log has.

**A durable consumer** of the origin, which a user has made with ``ack_policy: flow_control``, is reset to what it was
acknowledged (CONSUMER.RESET) instead of made, and delivers to a subject of its own. The reader listens to that once the
reset is answered, and leaves out what it has. It answers flow control with what is committed, which acknowledges that.
Messages from before the reset may still be on their way to that subject. Of such a one the sequence is not above the
last one that was heard since, since the consumer then had begun below; until the first one is heard it says nothing.
One that is above, with a number that is not the next, shows a loss, and so does a heartbeat that tells of any other
number.

The consumer, or its stream, may be deleted and made again under the same name at any moment, and no word of it need
come here. Its first messages would pass for those that the log has, and an answer to its flow control would acknowledge
what was never heard. So the reader asks who the consumer is (CONSUMER.INFO) *after* it has heard, and compares when it
was made with what the reset's answer said. A consumer that is there later was there before. The first message after a
reset, with all that come before the answer, is handed on when it is confirmed so, and each flow control request. A
message later on is not confirmed: one of another consumer has the next number only where all before it were lost, and
even then nothing is acknowledged by it.

**Another stream.** An origin that was deleted and made again has sequences of its own. What a source has taken of it
names the origin's identity as well, as JetStream has it since 2.15: a source begins with the new one from its start. A
mirror cannot, since its log has the old one's sequences.

**Silence.** The consumer sends a heartbeat each second. After ``SILENCE_MS`` without a word another one is made, later
each time up to ``PAUSE_MS_MAX``, until one delivers.

**Bounded memory.** The origin stops after some megabytes until its flow control request is answered. The request is
handed on in its place among the messages, and the owner answers when these are committed. What waits to be confirmed
(``held_bytes``) counts as what the owner has queued.

Time comes as an argument, in milliseconds of any clock that does not go back.
"""

import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from streamlog.metadata.stream.stream_origin import StreamOrigin, transform_of

HEARTBEAT_MS: Final = 1_000
SILENCE_MS: Final = 4_000
"""Without a word, though a heartbeat comes each second: the consumer is given up."""
ANSWER_MS: Final = 4_000
"""How long the answer to CONSUMER.CREATE is waited for."""
PAUSE_MS: Final = 100
PAUSE_MS_MAX: Final = 5_000
"""Between two consumers, doubled each time until one delivers."""
INACTIVE_NS: Final = 10_000_000_000
"""After so long without a subscriber the origin removes the consumer."""
NS_PER_MS: Final = 1_000_000
ACK: Final = b"$JS.ACK."
FLOW: Final = b"$JS.FC."
IDENTITY: Final = b"Nats-Stream-Identity"
"""Header of a request and its answer: of which stream it is (nats-server 2.15). Consumers of another are refused."""
OTHER_IDENTITY: Final = 10225
NO_INFO: Final = (
    "CONSUMER.INFO is not answered, by which a durable consumer is told from one that was made again under its name: "
    "allow it, as CONSUMER.RESET"
)
UNKNOWN_IDENTITY: Final = "?"
"""Of a stream that has refused to be read as another one."""
MADE_AGAIN: Final = "the origin was deleted and made again: delete the mirror"


NO_FLOW_MIRROR: Final = {
    "code": 400,
    "err_code": 10214,
    "description": "stream mirror consumer requires flow control ack policy",
}
NO_FLOW_SOURCE: Final = {
    "code": 400,
    "err_code": 10217,
    "description": "stream source consumer requires flow control ack policy",
}


class OriginMessage(NamedTuple):
    """One of the origin's, under the subject that it gets here."""

    subject: str
    sequence: int
    timestamp_ms: int
    header_block: bytes
    data: bytes
    original_subject: str
    identity: str = ""
    """Of the origin, which a stream that is made again under its name has not. Empty: it is not known."""

    @property
    def size_bytes(self) -> int:
        return len(self.subject) + len(self.header_block) + len(self.data)


class FlowControl(NamedTuple):
    """To be answered at this subject once all messages before it are committed."""

    reply: bytes
    block: bytes = b""
    """The header block of the answer: what it acknowledges."""

    @property
    def size_bytes(self) -> int:
        return len(self.reply) + len(self.block)


class OriginRequest(NamedTuple):
    """To be published."""

    subject: bytes
    payload: bytes
    reply: bytes = b""
    block: bytes = b""


class ReaderStep(NamedTuple):
    """What is to be done, in this order."""

    closes: bool = False
    """Nothing is listened to any more."""
    asks: bool = False
    """``answer_subjects`` are listened to."""
    opens: bool = False
    """``deliver_subject`` is, too."""
    sends: tuple[OriginRequest, ...] = ()
    takes: tuple[OriginMessage | FlowControl, ...] = ()


NOTHING_TO_DO: Final = ReaderStep()


class DeliveryNumbers(NamedTuple):
    """What the reply subject of a delivered message says."""

    stream: bytes
    consumer: bytes
    stream_sequence: int
    consumer_sequence: int
    timestamp_ns: int
    pending: int


def delivery_of(reply: bytes) -> DeliveryNumbers | None:
    """Of ``$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>``, or the second
    format, which has a domain and an account before the stream. None: it is neither.
    """
    if not reply.startswith(ACK):
        return None
    tokens = reply.split(b".")
    first = 5 if len(tokens) == 9 else 7
    if len(tokens) < 9 or len(tokens) == 10:
        return None
    try:
        numbers = (int(token) for token in tokens[first : first + 4])
        return DeliveryNumbers(tokens[first - 3], tokens[first - 2], *numbers)
    except ValueError:
        return None


class OriginReader:
    """``begin``, then ``tick`` when ``due_ms`` has come; ``answered`` and ``heard`` with what comes."""

    def __init__(
        self,
        origin: StreamOrigin,
        position: int,
        new_token: Callable[[], str],
        *,
        inbox: str,
        is_mirror: bool = False,
        identity: str = "",
    ) -> None:
        """``position``: the last sequence that the log has; 0: none, and the origin's configuration says where
        to begin. ``new_token``: one that cannot be guessed. ``inbox``: the prefix of inboxes. ``identity``: of the
        origin that ``position`` is of, as far as it is known.
        """
        self._is_mirror = is_mirror
        self._identity = identity
        self.replaced = 0
        """How often another stream had the origin's name, and was begun with."""
        self._no_flow = NO_FLOW_MIRROR if is_mirror else NO_FLOW_SOURCE
        self._heard_sequence = 0
        """Of a durable consumer: the last one since it was reset."""
        self._last_heard: DeliveryNumbers | None = None
        """The same; it says when the message was stored, which tells a double from a message of another stream."""
        self._origin = origin
        self._position = position
        self._new_token = new_token
        self._inbox = inbox
        self._transform = transform_of(origin)
        self._token = ""
        self._is_open = False
        """The request for a consumer is answered."""
        self._expected = 1
        """The number of the consumer's next delivery."""
        self._question = 0
        """The number of what was asked last, at the end of the subject of its answer."""
        self._created: object = None
        """When the durable consumer was made, as its API says it."""
        self._is_confirmed = False
        """The first message since the reset is of the consumer that was reset."""
        self._held: list[OriginMessage | FlowControl] = []
        """What waits to be confirmed, of a durable consumer."""
        self._asked_for = 0
        """So many of these were there when the question was asked that is not answered yet; 0: there is none."""
        self._answer_due_ms = 0
        """Of that question."""
        self.held_bytes = 0
        self._pause_ms = PAUSE_MS
        self.due_ms = 0
        """When ``tick`` is to be called next."""
        self.error: dict[str, Any] | None = None
        """Why there is no consumer, as the origin says it, or as we do."""
        self.lag = 0
        """Messages of the origin that are yet to come, as it said last."""
        self.heard_ms: int | None = None
        """When something came last."""
        self.restarts = 0

    @property
    def position(self) -> int:
        """The last sequence that was handed on."""
        return self._position

    @property
    def is_reading(self) -> bool:
        """A consumer was asked for, and has not been given up."""
        return bool(self._token)

    @property
    def _is_durable(self) -> bool:
        return bool(self._origin.consumer)

    @property
    def deliver_subject(self) -> str:
        if self._is_durable:
            return self._origin.consumer_deliver
        return f"{self._origin.deliver or self._inbox}.{self._token}"

    @property
    def answer_subjects(self) -> str:
        return f"{self._inbox}.{self._token}.answer.*"

    def _next_answer(self) -> bytes:
        """Where the next question is answered."""
        self._question += 1
        return f"{self._inbox}.{self._token}.answer.{self._question}".encode()

    def begin(self, now_ms: int) -> ReaderStep:
        """Ask for a consumer; an earlier one is given up."""
        closes, self._token, self._expected = self.is_reading, self._new_token(), 1
        self._is_open = self._is_confirmed = False
        self._hold_nothing()
        self.due_ms = now_ms + ANSWER_MS
        name = self._origin.name
        block = b"NATS/1.0\r\n%b: %b\r\n\r\n" % (IDENTITY, self._identity.encode())
        if self._is_durable:
            subject = f"{self._origin.api}.CONSUMER.RESET.{name}.{self._origin.consumer}"
            send = OriginRequest(subject.encode(), b"", self._next_answer(), block)
            return ReaderStep(closes=closes, asks=True, sends=(send,))
        request = {"stream_name": name, "config": self._config()}
        send = OriginRequest(
            f"{self._origin.api}.CONSUMER.CREATE.{name}".encode(),
            json.dumps(request).encode(),
            self._next_answer(),
            block,
        )
        return ReaderStep(closes=closes, asks=True, sends=(send,))

    def tick(self, now_ms: int) -> ReaderStep:
        if now_ms < self.due_ms:
            return NOTHING_TO_DO
        if not self.is_reading:
            return self.begin(now_ms)
        if self._asked_for and now_ms >= self._answer_due_ms:
            return self.give_up(now_ms, NO_INFO)
        return self.give_up(now_ms, "the origin is not heard")

    def answered(self, subject: bytes, payload: bytes, block: bytes, now_ms: int) -> ReaderStep:
        """The answer to CONSUMER.CREATE, RESET or INFO, or that there is none."""
        if subject.rpartition(b".")[2] != b"%d" % self._question:
            return NOTHING_TO_DO  # to another question
        if self._is_durable and self._is_open:
            return self._told(payload, block, now_ms)
        if block.startswith(b"NATS/1.0 503"):
            return self.give_up(now_ms, "no API answers under this prefix")
        try:
            answer = json.loads(payload)
            error, pending = answer.get("error"), answer.get("num_pending", 0)
            policy = answer.get("config", {}).get("ack_policy")
            delivered = int(answer.get("delivered", {}).get("stream_seq", 0))
            created = answer.get("created")
        except (ValueError, AttributeError, TypeError):
            return self.give_up(now_ms, "the answer of the origin's API is not readable")
        if not error and self._is_durable and policy != "flow_control":
            error = self._no_flow
        identity = status_headers(block).get(IDENTITY.lower(), b"").decode(errors="replace")
        if isinstance(error, dict) and error.get("err_code") == OTHER_IDENTITY:
            identity = UNKNOWN_IDENTITY
        if self._identity and identity and identity != self._identity:
            if self._is_mirror:
                return self.give_up(now_ms, MADE_AGAIN)
            self._position, self.replaced = 0, self.replaced + 1
        if identity == UNKNOWN_IDENTITY:
            self._identity = ""
            return self.begin(now_ms)
        self._identity = identity or self._identity
        if error:
            self.give_up(now_ms, "")
            self.error = error if isinstance(error, dict) else {"description": str(error)}
            return ReaderStep(closes=True)
        if self._expected == 1 and isinstance(pending, int):
            self.lag = pending
        if self._is_durable and not created:
            return self.give_up(now_ms, "the origin's API does not say when the consumer was made")
        if not self._is_durable:
            self.error = None
        self._alive(now_ms)
        self._heard_sequence, self._created = delivered, created
        if self._is_open:
            return NOTHING_TO_DO
        self._is_open = True  # not before: now it is known of which stream the messages are
        return ReaderStep(opens=True)

    def heard(
        self, subject: bytes, reply: bytes, block: bytes, payload: bytes, now_ms: int
    ) -> ReaderStep:
        """Something came by the deliver subject."""
        if block.startswith(b"NATS/1.0 "):
            return self._status(reply, block, now_ms)
        delivery = delivery_of(reply)
        if delivery is None:
            return NOTHING_TO_DO  # anybody may publish to an inbox
        if self._is_durable:
            return self._heard_durable(subject, delivery, block, payload, now_ms)
        if delivery.consumer_sequence < self._expected:
            return NOTHING_TO_DO
        if delivery.consumer_sequence > self._expected:
            return self._missed(now_ms)
        if delivery.stream_sequence <= self._position:
            said = "the origin's sequences do not grow: it has several partitions, or another stream has its name"
            return self.give_up(now_ms, said)
        return self._taken(subject, delivery, block, payload, now_ms)

    def _heard_durable(
        self, subject: bytes, it: DeliveryNumbers, block: bytes, payload: bytes, now_ms: int
    ) -> ReaderStep:
        """Others may deliver to its subject."""
        origin = self._origin
        if (it.stream, it.consumer) != (origin.name.encode(), origin.consumer.encode()):
            return NOTHING_TO_DO
        if it.stream_sequence <= self._heard_sequence:
            # The next one, or not the first, and yet an earlier one: it may be of a consumer that was made again.
            is_late = self._expected == 1 and it.consumer_sequence != 1
            return NOTHING_TO_DO if is_late or it == self._last_heard else self._missed(now_ms)
        if it.consumer_sequence != self._expected:
            return self._missed(now_ms)
        self._heard_sequence, self._last_heard = it.stream_sequence, it
        if it.stream_sequence > self._position:
            return self._taken(subject, it, block, payload, now_ms)
        self._expected += 1
        self._alive(now_ms)
        return NOTHING_TO_DO

    def _taken(
        self, subject: bytes, delivery: DeliveryNumbers, block: bytes, payload: bytes, now_ms: int
    ) -> ReaderStep:
        self._expected += 1
        self.lag = delivery.pending
        self._alive(now_ms)
        original = subject.decode(errors="replace")
        message = OriginMessage(
            self._transform(original) if self._origin.transforms else original,
            delivery.stream_sequence,
            delivery.timestamp_ns // NS_PER_MS,
            block,
            payload,
            original,
            self._identity,
        )
        if self._is_durable and not self._is_confirmed:
            return self._hold(message, now_ms)
        self._position = delivery.stream_sequence
        self._pause_ms = PAUSE_MS
        self.error = None
        return ReaderStep(takes=(message,))

    def _hold(self, it: OriginMessage | FlowControl, now_ms: int) -> ReaderStep:
        """Until it is known that it is of the consumer that was reset."""
        self._held.append(it)
        self.held_bytes += it.size_bytes
        return self._ask(now_ms)

    def _hold_nothing(self) -> None:
        self._held, self.held_bytes, self._asked_for = [], 0, 0

    def _ask(self, now_ms: int) -> ReaderStep:
        """Which consumer it is that has delivered what is held, unless that is asked already."""
        if self._asked_for or not self._held:
            return NOTHING_TO_DO
        self._asked_for, self._answer_due_ms = len(self._held), now_ms + ANSWER_MS
        self.due_ms = min(self.due_ms, self._answer_due_ms)
        origin = self._origin
        subject = f"{origin.api}.CONSUMER.INFO.{origin.name}.{origin.consumer}"
        return ReaderStep(sends=(OriginRequest(subject.encode(), b"", self._next_answer()),))

    def _told(self, payload: bytes, block: bytes, now_ms: int) -> ReaderStep:
        """The answer to CONSUMER.INFO."""
        count = self._asked_for
        if not count:
            return NOTHING_TO_DO  # the answer came before
        if block.startswith(b"NATS/1.0 503"):
            return self.give_up(now_ms, NO_INFO)
        try:
            answer = json.loads(payload)
            error, created = answer.get("error"), answer.get("created")
        except (ValueError, AttributeError):
            return self.give_up(now_ms, "the answer of the origin's API is not readable")
        if error:
            self.give_up(now_ms, "")
            self.error = error if isinstance(error, dict) else {"description": str(error)}
            return ReaderStep(closes=True)
        identity = status_headers(block).get(IDENTITY.lower(), b"").decode(errors="replace")
        if created != self._created or (identity and identity != self._identity):
            return self._missed(now_ms)
        held = self._held
        takes, rest = held[:count], held[count:]
        if not self._is_confirmed:  # the first message is; those that came after it need not be
            takes += [it for it in rest if isinstance(it, OriginMessage)]
            rest = [it for it in rest if isinstance(it, FlowControl)]
            self._is_confirmed = True
        self._held, self.held_bytes = rest, sum(it.size_bytes for it in rest)
        self._asked_for = 0
        self._position = max(
            (it.sequence for it in takes if isinstance(it, OriginMessage)), default=self._position
        )
        self._pause_ms = PAUSE_MS
        self.error = None
        self._alive(now_ms)
        return ReaderStep(takes=tuple(takes), sends=self._ask(now_ms).sends)

    def _status(self, reply: bytes, block: bytes, now_ms: int) -> ReaderStep:
        """A heartbeat, a flow control request, or the end of the consumer."""
        if not block.startswith(b"NATS/1.0 100"):
            line = block[9:].split(b"\r\n", 1)[0]
            return self.give_up(now_ms, f"the consumer ended: {line.decode(errors='replace')}")
        self._alive(now_ms)
        if reply:
            return self._flow_control(reply, now_ms)
        headers = status_headers(block)
        last = headers.get(b"nats-last-consumer", b"")
        if last.isdigit() and (
            int(last) >= self._expected or (self._is_durable and int(last) + 1 != self._expected)
        ):
            return self._missed(now_ms)
        stream = headers.get(b"nats-last-stream", b"")
        if self._is_durable and stream.isdigit() and int(stream) < self._heard_sequence:
            return self._missed(now_ms)  # it is of a consumer, or a stream, that was made again
        if last.isdigit() and not self._held:
            self._pause_ms = PAUSE_MS
            self.error = None
        stalled = headers.get(b"nats-consumer-stalled")
        return self._flow_control(stalled, now_ms) if stalled else NOTHING_TO_DO

    def _flow_control(self, reply: bytes, now_ms: int) -> ReaderStep:
        """A client that may publish to the subject of a durable consumer must not have the node publish elsewhere."""
        if not self._is_durable:
            return ReaderStep(takes=(FlowControl(reply),))
        consumer = [self._origin.name.encode(), self._origin.consumer.encode()]
        if not reply.startswith(FLOW) or reply.split(b".")[-3:-1] != consumer:
            return NOTHING_TO_DO
        numbers = self._expected - 1, self._heard_sequence
        block = b"NATS/1.0\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n\r\n" % numbers
        if any(isinstance(it, FlowControl) and it.reply == reply for it in self._held):
            return NOTHING_TO_DO  # a heartbeat says it again
        return self._hold(FlowControl(reply, block), now_ms)

    def _alive(self, now_ms: int) -> None:
        self.heard_ms = now_ms
        self.due_ms = now_ms + SILENCE_MS
        if self._asked_for:
            self.due_ms = min(self.due_ms, self._answer_due_ms)

    def _missed(self, now_ms: int) -> ReaderStep:
        """Something was lost on the way. A durable consumer is not reset without a pause: what is on its way from
        before would have it reset again.
        """
        if self._is_durable:
            return self.give_up(now_ms, "")
        self.restarts += 1
        return self.begin(now_ms)

    def give_up(self, now_ms: int, why: str) -> ReaderStep:
        """Listen no more, and try again later behind what was handed on."""
        if why:
            self.error = {"code": 503, "err_code": 10008, "description": why}
        self.restarts += 1
        self._token = ""
        self._hold_nothing()
        self.due_ms = now_ms + self._pause_ms
        self._pause_ms = min(self._pause_ms * 2, PAUSE_MS_MAX)
        return ReaderStep(closes=True)

    def _config(self) -> dict[str, Any]:
        """Of the consumer."""
        origin = self._origin
        config: dict[str, Any] = {
            "deliver_subject": self.deliver_subject,
            "deliver_policy": "all",
            "ack_policy": "none",
            "max_deliver": 1,
            "ack_wait": 22 * 3600 * 1_000 * NS_PER_MS,
            "replay_policy": "instant",
            "flow_control": True,
            "idle_heartbeat": HEARTBEAT_MS * NS_PER_MS,
            "inactive_threshold": INACTIVE_NS,
            "mem_storage": True,
            "num_replicas": 1,
            "direct": True,
        }
        if self._position:
            config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": self._position + 1}
        elif origin.start_ms is not None:
            said = origin.json()["opt_start_time"]
            config |= {"deliver_policy": "by_start_time", "opt_start_time": said}
        elif origin.start_seq:
            config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": origin.start_seq}
        if len(origin.filters) == 1:
            config["filter_subject"] = origin.filters[0]
        elif origin.filters:
            config["filter_subjects"] = list(origin.filters)
        return config


def status_headers(block: bytes) -> dict[bytes, bytes]:
    """By name in small letters."""
    found = dict[bytes, bytes]()
    for line in block.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            found[name.strip().lower()] = value.strip()
    return found
