"""Fast batches: messages that are stored one by one, as they come, and are acknowledged together (ADR-50). Pure.

The reply subject of each message says where it belongs, and ends in ``.$FI``. Nothing is staged: what a batch adds
to ordinary publishing is that its publisher is told after so many messages how far it got, and that a message that
is missing ends the batch, unless gaps are ok. Only that guards against a loss on the way to the node: so all that is
told of a batch in which no gap is ok is that its messages up to a number are committed, or that it has ended.

What lies here is of no partition yet: a leader that goes takes it along. The next one knows of no batch, and says so.

``frames`` and ``fast_run`` take messages that follow one another; the decisions are nats-server's, in its order.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from streamlog.errors import BrokenInvariant
from streamlog.ingest.admission.batches.fast_run import Entry, FastBatch, FastRun, InFlight
from streamlog.ingest.admission.refusal import PublishRefusal

NODE_BATCHES_MAX: Final = 50_000
"""Of a node. JetStream's limit, as are the others."""
BATCHES_MAX: Final = 1_000
"""Of one partition."""
ID_BYTES_MAX: Final = 64
FLOW_MAX: Final = 500
"""A publisher is told after so many messages at the latest, or after its share of them."""
FLOW_DEFAULT: Final = 10
_FLOW_WISH_MAX: Final = 2**16 - 1
_NUMBER_MAX: Final = 2**64 - 2
IDLE_MS_MAX: Final = 10_000
"""A batch for which nothing comes for so long, and of which nothing waits for its commit, is forgotten."""

START, APPEND, COMMIT, COMMIT_EOB, PING = range(5)
"""What a message is to its batch. The last two are not stored."""
_SUFFIX: Final = b".$FI"
_GAP_OK: Final = {b"ok": True, b"fail": False}

DISABLED: Final = PublishRefusal(400, 10205, "batch publish is disabled", "batch")
BAD_PATTERN: Final = PublishRefusal(400, 10206, "batch publish pattern is invalid", "batch")
BAD_ID: Final = PublishRefusal(400, 10207, "batch publish ID is invalid", "batch")
UNKNOWN: Final = PublishRefusal(400, 10208, "batch publish ID unknown", "batch")
TOO_MANY: Final = PublishRefusal(429, 10211, "batch publish too many inflight", "overloaded")


class FastReply(NamedTuple):
    """What a reply subject asks for: ``<prefix>.<id>.<flow>.<gap mode>.<number>.<operation>.$FI``."""

    batch_id: bytes
    flow: int
    gap_ok: bool
    number: int
    operation: int


def read_reply(reply: bytes) -> FastReply | None:
    """None: it is not of that form."""
    words = reply.removesuffix(_SUFFIX).rsplit(b".", 5)
    if len(words) != 6:
        return None
    _, batch_id, flow, gaps, number, operation = words
    numbers = _number(operation), _number(number)
    if numbers[0] is None or numbers[1] is None or gaps not in _GAP_OK:
        return None
    asked = FastReply(batch_id, _flow(flow), _GAP_OK[gaps], numbers[1], numbers[0])
    if asked.operation > PING or not 0 < asked.number <= _NUMBER_MAX:
        return None
    if asked.number == 1 and asked.operation in (APPEND, COMMIT_EOB):
        return None
    return None if asked.operation == START and asked.number != 1 else asked


def _number(text: bytes) -> int | None:
    return int(text) if text.isdigit() and len(text) <= 1_000 else None


def _flow(text: bytes) -> int:
    return min(_number(text) or FLOW_DEFAULT, _FLOW_WISH_MAX)


class FlowAck(NamedTuple):
    """All up to ``number`` is committed, but for gaps; the next ack comes after ``flow`` messages more."""

    number: int
    flow: int


class FlowGap(NamedTuple):
    """Another message came than was to come."""

    expected: int
    came: int


class FlowError(NamedTuple):
    """The message is not stored."""

    number: int
    refusal: PublishRefusal


class BatchAck(NamedTuple):
    """The end of a batch: all of it up to its message ``last`` is committed, but for gaps."""

    sequence: int
    batch_id: bytes
    last: int
    repeated: bool = False


Answer = FlowAck | FlowGap | FlowError | BatchAck | PublishRefusal


class FastBatchLimit:
    """Of a node."""

    def __init__(self, batches_max: int = NODE_BATCHES_MAX) -> None:
        self._batches_max = batches_max
        self.count = 0

    def begin(self) -> bool:
        """One batch more; False if there may be none."""
        if self.count >= self._batches_max:
            return False
        self.count += 1
        return True

    def end(self) -> None:
        self.count -= 1
        if self.count < 0:
            raise BrokenInvariant("what ended had begun")


class FastBatches:
    """Of one partition: ``add`` each message that the run does not take by itself, and say what becomes of it; then say
    what becomes of the run. ``take_answers`` after each call.

    Invariant: every batch in here has begun in ``limit``.
    """

    def __init__(self, run: FastRun, limit: FastBatchLimit) -> None:
        self.run = run
        self._limit = limit
        self._batches: dict[bytes, FastBatch] = {}
        self._answers: list[tuple[bytes, Answer]] = []
        self._waiting: dict[FastBatch, None] = {}
        """Those with something in flight."""

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def is_waiting(self) -> bool:
        """Something is in flight."""
        return bool(self._waiting)

    def take_answers(self) -> list[tuple[bytes, Answer]]:
        """(reply, answer) of all that is to be told now."""
        answers, self._answers = self._answers, []
        return answers

    def add(
        self,
        asked: FastReply | None,
        reply: bytes,
        *,
        now_ms: int,
        level: PublishRefusal | None = None,
    ) -> FastBatch | None:
        """The batch of a message that is to be judged; None: it is not stored. ``level``: why it asks for too much."""
        if asked is None:
            self._refuse(reply, BAD_PATTERN)
            return None
        if len(asked.batch_id) > ID_BYTES_MAX:
            self._refuse(reply, BAD_ID)
            return None
        self.expire(now_ms)
        batch = self._batches.get(asked.batch_id)
        if batch is None:
            if asked.number != 1 or asked.operation == PING:
                self._refuse(reply, UNKNOWN)
                return None
            if len(self._batches) >= BATCHES_MAX or not self._limit.begin():
                self._refuse(reply, TOO_MANY)
                return None
            batch = FastBatch(asked.batch_id, gap_ok=asked.gap_ok, flow_max=asked.flow)
            self._batches[asked.batch_id] = batch
            batch.flow = min(FLOW_MAX, asked.flow) if len(self._batches) == 1 else 1
        if level is not None:
            self._end(batch)
            self._refuse(reply, level)
            return None
        batch.deadline_ms = now_ms + IDLE_MS_MAX
        self.run.hear(batch, reply)
        if asked.operation == PING:
            self._ping(batch, asked.number)
            return None
        return batch if self._takes(batch, asked) else None

    def stored(self, batch: FastBatch, asked: FastReply, position: int) -> None:
        """It goes into the run there."""
        self.run.note(batch, asked.number, position)

    def repeated(self, batch: FastBatch, asked: FastReply, first: int, position: int) -> None:
        """It is in the log, or in the run, at the offset ``first``."""
        if asked.operation == COMMIT and asked.number == batch.last == 1 and not batch.gap_ok:
            batch.repeated_of = first
        self.run.note(batch, asked.number, position, first)

    def repeated_at(self, entry: Entry, first: int) -> None:
        """A repeated message of a run that is made again; ``first``: where the first one is now."""
        if entry.batch.repeated_of == entry.repeated_of:
            entry.batch.repeated_of = first
        self.run.note(entry.batch, entry.number, entry.position, first)

    def refused(self, batch: FastBatch, asked: FastReply, refusal: PublishRefusal) -> None:
        """It is not stored."""
        self._fail(batch, asked.number, refusal)
        self._finish(batch)

    def appended(self, base_offset: int, awaited: int = -1) -> None:
        """The run is in the log from there on; ``awaited``: to be committed, too, before it is told."""
        touched = self.run.touched
        found = []
        for batch in touched:
            stored = base_offset + batch.position if batch.position >= 0 else -1
            offset = max(stored, batch.repeated, awaited)
            item = InFlight(offset, batch.run_first, batch.run_last, stored + 1)
            found.append((batch, item))
        self.run.clear()
        for batch, item in found:
            if not batch.ended and item.first <= batch.last:
                batch.in_flight.append(item)
                self._waiting[batch] = None
            else:
                self._finish(batch)

    def committed(self, end: int, now_ms: int) -> None:
        """All before that offset is."""
        for batch in list(self._waiting):
            if batch.in_flight[0].awaited < end:
                batch.deadline_ms = max(batch.deadline_ms, now_ms + IDLE_MS_MAX)
                self._commit(batch, end)

    def not_appended(self, refusal: PublishRefusal) -> None:
        """Nothing of the run is stored."""
        entries = self.run.take()
        for entry in entries:
            self.lose(entry, refusal)
        self.settle(entries)

    def goes_on(self, entry: Entry) -> bool:
        """It may be stored still: no message before it was refused."""
        batch = entry.batch
        return not batch.ended and entry.number <= batch.last

    def lose(self, entry: Entry, refusal: PublishRefusal) -> None:
        """A message that was in the run is not stored after all; ``settle`` when that is known of all of them."""
        if self.goes_on(entry):
            self._fail(entry.batch, entry.number, refusal)

    def settle(self, entries: Iterable[Entry]) -> None:
        for batch in dict.fromkeys(entry.batch for entry in entries):
            if not batch.ended and not self._is_pending(batch):
                batch.persisted = batch.last
                if not self._finish(batch):
                    self._tell_flow(batch)

    def fail(self, from_offset: int, refusal: PublishRefusal) -> None:
        """What is in flight there and above will not be committed by this leader, perhaps by the next one: there is no
        saying how far such a batch got.
        """
        for batch in list(self._waiting):
            if any(it.awaited >= from_offset for it in batch.in_flight):
                self._end(batch)
                self._tell(batch, refusal)

    def fail_run(self, batches: Iterable[FastBatch], refusal: PublishRefusal) -> None:
        """What the run has of these cannot be acknowledged."""
        for batch in batches:
            if not batch.ended and batch.index >= 0:
                self._fail(batch, batch.run_first, refusal)
                if not batch.ended:
                    batch.last, batch.commits = batch.run_first - 1, True

    def expire(self, now_ms: int) -> None:
        """Forget those for which nothing has come for too long; JetStream says nothing of that."""
        for batch in [it for it in self._batches.values() if it.deadline_ms <= now_ms]:
            if not self._is_pending(batch):
                self._end(batch)

    def clear(self, refusal: PublishRefusal | None) -> None:
        """They cannot go on here. None: their publishers hear of it when they send more."""
        self.run.clear()
        for batch in list(self._batches.values()):
            self._end(batch)
            if refusal is not None:
                self._tell(batch, refusal)

    def _takes(self, batch: FastBatch, asked: FastReply) -> bool:
        """The message is the next one, or makes the batch end."""
        if batch.commits:  # its publisher waits for its ack
            return False
        expected, number = batch.last + 1, asked.number
        if number != expected:
            self._tell(batch, FlowGap(expected, number))
            if not batch.gap_ok or number < expected:
                batch.commits = True
                self._finish(batch)
                return False
        if asked.operation == COMMIT_EOB:
            batch.last, batch.commits = number - 1, True
            self._finish(batch)
            return False
        batch.last, batch.commits = number, asked.operation == COMMIT
        if number == 1 and not batch.commits:
            self._tell(batch, FlowAck(0, batch.flow))
        return True

    def _ping(self, batch: FastBatch, number: int) -> None:
        """The last ack again; and a gap at the end, which no message shows."""
        told = False
        if number > batch.last:
            self._tell(batch, FlowGap(batch.last + 1, number + 1))
            if batch.gap_ok and not batch.commits:
                batch.last = number
                if not self._is_pending(batch):
                    batch.persisted = number
                told = self._tell_flow(batch)
            else:
                batch.commits = True
                told = self._finish(batch)
        if not told:
            self._tell(batch, FlowAck(batch.acked, batch.flow))

    def _fail(self, batch: FastBatch, number: int, refusal: PublishRefusal) -> None:
        """A message is not stored."""
        if not batch.gap_ok and number == 1:
            self._end(batch)
            self._tell(batch, refusal)
            return
        self._tell(batch, FlowError(number, refusal))
        if not batch.gap_ok or (batch.commits and number == batch.last):
            batch.last, batch.commits = number - 1, True

    def _commit(self, batch: FastBatch, end: int) -> None:
        """What it has in flight, up to there."""
        in_flight = batch.in_flight
        while in_flight and in_flight[0].awaited < end:
            item = in_flight.popleft()
            batch.sequence = item.sequence or batch.sequence
            batch.persisted = min(item.last, batch.last)
        if not in_flight:
            del self._waiting[batch]
        if not self._is_pending(batch):
            batch.persisted = batch.last
        if not self._finish(batch):
            self._tell_flow(batch)

    def _finish(self, batch: FastBatch) -> bool:
        """The batch has ended with that, and its publisher is told."""
        if not batch.commits or batch.ended or self._is_pending(batch):
            return False
        self._end(batch)
        if batch.repeated_of >= 0:
            ack = BatchAck(batch.repeated_of + 1, batch.batch_id, batch.last, repeated=True)
        else:
            ack = BatchAck(batch.sequence, batch.batch_id, batch.last)
        self._tell(batch, ack)
        return True

    def _tell_flow(self, batch: FastBatch) -> bool:
        """An ack, if one is due; publishers share what may be on the way."""
        flow = batch.flow
        if batch.persisted < batch.acked + flow:
            return False
        batch.acked += (batch.persisted - batch.acked) // flow * flow
        share = min(max(1, FLOW_MAX // len(self._batches)), batch.flow_max)
        batch.flow = min(2 * flow, share) if flow < share else max(flow // 2, share)
        self._tell(batch, FlowAck(batch.acked, batch.flow))
        return True

    @staticmethod
    def _is_pending(batch: FastBatch) -> bool:
        """Something of it is not committed."""
        return bool(batch.in_flight) or batch.index >= 0

    def _end(self, batch: FastBatch) -> None:
        del self._batches[batch.batch_id]
        self._waiting.pop(batch, None)
        batch.in_flight.clear()
        batch.ended = True
        self.run.forget(batch)
        self._limit.end()

    def _refuse(self, reply: bytes, refusal: PublishRefusal) -> None:
        self._answers.append((reply, refusal))

    def _tell(self, batch: FastBatch, answer: Answer) -> None:
        self._answers.append((batch.reply, answer))
