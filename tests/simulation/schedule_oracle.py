"""What a log may say of schedules, message by message: a naive reading of docs/publishing.md."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from streamlog.record.batch import batches
from streamlog.record.codec import Record, iter_records
from streamlog.record.erasure import erased_by
from streamlog.record.offset_set import OffsetSet
from tests.simulation.checkers import Violation

SECOND_NS: Final = 10**9
AT: Final = "@at "
EVERY: Final = "@every "
CRON_SECONDS: Final = "*/"
"""What a cron expression begins with here: it names every so many seconds of a minute."""


class Message(NamedTuple):
    """A record of the log."""

    offset: int
    batch: int
    """The offset of the first message of its batch."""
    timestamp_ms: int
    subject: str
    headers: dict[str, str]
    payload: str

    @property
    def is_fired(self) -> bool:
        """And not by a publisher, who ends a schedule with the same headers."""
        return "Nats-Scheduler" in self.headers and "Nats-Msg-Id" not in self.headers


class Erasure(NamedTuple):
    offset: int
    erased: OffsetSet


@dataclass
class Planned:
    """A schedule that is there."""

    message: Message
    due_ns: int
    every_ns: int
    """0: it fires once."""
    purged_at: int | None = None
    """It was acknowledged that it has gone when the log ended there."""

    @property
    def name(self) -> str:
        return f"{self.message.payload} on {self.message.subject} at {self.message.offset}"


def entries_of(data: bytes, start: int, end: int) -> Iterator[Message | Erasure]:
    """Those from ``start`` up to ``end``."""
    for header, batch in batches(memoryview(data)):
        erased = erased_by(batch, header)
        if erased is not None and start <= header.base_offset < end:
            yield Erasure(header.base_offset, erased)
        for it in iter_records(batch):
            if start <= it.offset < end:
                yield _message(header.base_offset, it)


def _message(batch: int, record: Record) -> Message:
    headers = {name: (value or b"").decode() for name, value in reversed(record.headers)}
    return Message(
        record.offset,
        batch,
        record.timestamp_ms,
        headers.pop("subject", ""),
        headers,
        (record.value or b"").decode().rstrip("."),
    )


class ScheduleOracle:
    """Of one log. Told of what is committed, in order; raises Violation."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.planned: dict[str, Planned] = {}
        """By subject."""
        self.purge_asked = 0
        """All below may have gone without a word in the log."""
        self.set_back_ns = 0
        """Wall clocks were set back by so much at most."""
        self.fired = 0
        self._there: dict[str, dict[int, Message]] = {}
        """By subject and offset, what is not erased."""
        self._owed: dict[int, Message] = {}
        """Messages that are to be erased before the next message, and what has them go."""
        self._end = 0

    def take(self, entry: Message | Erasure) -> None:
        self._end = entry.offset + 1
        if isinstance(entry, Erasure):
            self._erase(entry.erased)
            return
        self._check_owed(entry)
        if entry.is_fired:
            self._fired(entry)
        elif entry.headers.get("Nats-Schedule-Next"):
            self._ended(entry, entry.headers["Nats-Scheduler"])
        if entry.headers.get("Nats-Rollup"):
            self._owe(entry, entry.subject)
        if not entry.is_fired:
            self.planned.pop(entry.subject, None)
        self._there.setdefault(entry.subject, {})[entry.offset] = entry
        if entry.headers.get("Nats-Schedule"):
            self._stored(entry)

    def _stored(self, message: Message) -> None:
        spec = message.headers["Nats-Schedule"]
        stored_ns = message.timestamp_ms * 1_000_000
        if spec.startswith(AT):
            planned = Planned(message, _time_ns(spec.removeprefix(AT)), 0)
        elif spec.startswith(EVERY):
            every_ns = int(spec.removeprefix(EVERY).removesuffix("s")) * SECOND_NS
            planned = Planned(message, _rounded(stored_ns) + every_ns, every_ns)
        else:
            every_ns = int(spec.removeprefix(CRON_SECONDS).partition(" ")[0]) * SECOND_NS
            planned = Planned(message, (stored_ns // every_ns + 1) * every_ns, every_ns)
        self.planned[message.subject] = planned

    def _ended(self, message: Message, scheduler: str) -> None:
        self.planned.pop(scheduler, None)
        self._owe(message, scheduler)

    def _owe(self, message: Message, subject: str) -> None:
        for offset, it in self._there.get(subject, {}).items():
            if "Nats-TTL" not in it.headers:  # else it may have gone of itself
                self._owed.setdefault(offset, message)

    def _check_owed(self, message: Message) -> None:
        for offset, why in self._owed.items():
            if why.batch != message.batch and offset >= self.purge_asked:
                raise Violation(
                    f"{self._name}: {message} is stored, and the message at {offset}, which {why} has"
                    " go, is not erased"
                )

    def _fired(self, message: Message) -> None:
        scheduler, following = (
            message.headers[it] for it in ("Nats-Scheduler", "Nats-Schedule-Next")
        )
        planned = self.planned.get(scheduler)
        told = f"{self._name}: {message.payload} at {message.offset}, next {following}, is fired"
        if planned is None:
            raise Violation(f"{told} by {scheduler}, where no schedule is any more")
        if planned.purged_at is not None and message.offset >= planned.purged_at:
            raise Violation(f"{told} by {planned.name}, which was purged")
        if message.subject != planned.message.headers["Nats-Schedule-Target"]:
            raise Violation(f"{told} on {message.subject} by {planned.name}")
        at_ns = message.timestamp_ms * 1_000_000
        if at_ns + self.set_back_ns < planned.due_ns:
            raise Violation(f"{told} by {planned.name} before {planned.due_ns}: {at_ns}")
        self._check_payload(message, planned, told)
        self.fired += 1
        if not planned.every_ns:
            if following != "purge":
                raise Violation(f"{told} by {planned.name}, which fires once")
            self._ended(message, scheduler)
            return
        next_ns, every_ns = _time_ns(following), planned.every_ns
        latest_ns = max(planned.due_ns, at_ns + self.set_back_ns) + every_ns + SECOND_NS // 2
        if not planned.due_ns < next_ns <= latest_ns or next_ns % SECOND_NS:
            raise Violation(f"{told} by {planned.name}, due at {planned.due_ns}")
        planned.due_ns = next_ns

    def _check_payload(self, message: Message, planned: Planned, told: str) -> None:
        source = planned.message.headers.get("Nats-Schedule-Source", "")
        there = self._there.get(source, {}) if source else {}
        newest = max(there, default=-1)
        wanted = there[newest].payload if there else planned.message.payload
        may_have_gone = there and newest < self.purge_asked
        if message.payload != wanted and not may_have_gone:
            raise Violation(f"{told} by {planned.name}, not {wanted}")

    def _erase(self, erased: OffsetSet) -> None:
        for subject, there in list(self._there.items()):
            for offset in [it for it in there if it in erased]:
                del there[offset]
                self._owed.pop(offset, None)
                planned = self.planned.get(subject)
                if planned is not None and planned.message.offset == offset:
                    del self.planned[subject]

    # What those who ask are told

    def stored(self, offset: int) -> None:
        """A publisher was told that its message is there: what it has go is not."""
        for owed, why in self._owed.items():
            if why.offset == offset and owed >= self.purge_asked:
                raise Violation(
                    f"{self._name}: {why} is acknowledged, and the message at {owed} is not erased"
                )

    def purged(self, upper: int, end: int) -> None:
        """... that all below ``upper`` has gone, when the log ended at ``end``."""
        for planned in self.planned.values():
            if planned.message.offset < upper and planned.purged_at is None:
                planned.purged_at = end

    def erased(self, subject: str, upper: int, end: int) -> None:
        """... that all below ``upper`` on a subject has gone, when the log ended at ``end``: the log says so, or a
        purge that was asked for has taken it.
        """
        planned = self.planned.get(subject)
        if planned is None or planned.message.offset >= upper or planned.purged_at is not None:
            return
        if planned.message.offset >= self.purge_asked:
            raise Violation(f"{self._name}: {planned.name} is acknowledged as erased, and is there")
        planned.purged_at = end

    def late(self, now_ns: int) -> list[str]:
        """Schedules that ought to have fired by now, and messages that ought to be erased by now."""
        late = [
            f"{planned.name} was to fire at {planned.due_ns}"
            for planned in self.planned.values()
            if planned.due_ns < now_ns and planned.message.offset >= self.purge_asked
        ]
        owed = [it for it in self._owed if it >= self.purge_asked]
        return late + [
            f"{self._owed[it]} has the message at {it} go, which is there" for it in owed
        ]


def _rounded(instant_ns: int) -> int:
    return (instant_ns + SECOND_NS // 2) // SECOND_NS * SECOND_NS


def _time_ns(text: str) -> int:
    whole, _, fraction = text.removesuffix("Z").partition(".")
    seconds = int(datetime.fromisoformat(whole + "+00:00").timestamp())
    return seconds * SECOND_NS + int(fraction.ljust(9, "0"))
