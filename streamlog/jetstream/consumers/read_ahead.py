"""Messages that were read for a consumer and are not delivered yet, in the order in which they will be. Pure.

They are kept as the runs in which they were read: most are handed over as runs, too.
"""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from streamlog.control.messages.stored_messages import StoredMessage
from streamlog.delivery.delivery import Place
from streamlog.record.compiled.message_run import MessageRun


@dataclass(slots=True)
class RunPart:
    """The messages of a run from index ``start`` on."""

    partition: int
    run: MessageRun
    start: int

    @property
    def count(self) -> int:
        return self.run.count - self.start


class AheadMessage(NamedTuple):
    """One message, and where it is."""

    place: Place
    message: StoredMessage


class ReadAhead:
    """A queue of messages."""

    def __init__(self) -> None:
        self._parts: deque[RunPart] = deque()
        self.count = 0
        self._first: AheadMessage | None = None
        """If it has been looked at."""

    def add(self, partition: int, run: MessageRun, offset: int) -> bool:
        """The run's messages at ``offset`` or later. False: there are none."""
        part = RunPart(partition, run, run.index_of(offset))
        if part.count:
            self._parts.append(part)
            self.count += part.count
        return part.count > 0

    @property
    def first(self) -> AheadMessage:
        if self._first is None:
            part = self._parts[0]
            message = StoredMessage(*part.run.message(part.start))
            self._first = AheadMessage(Place(part.partition, message.sequence - 1), message)
        return self._first

    @property
    def first_part(self) -> RunPart:
        """What may be taken at once: messages of one run."""
        return self._parts[0]

    def drop(self, count: int) -> None:
        """The first ``count`` messages, no more than the first part has, are delivered."""
        part = self._parts[0]
        part.start += count
        self.count -= count
        self._first = None
        if part.start == part.run.count:
            self._parts.popleft()

    def next_offset(self, partition: int) -> int | None:
        """After the last message of that partition; None: there is none."""
        found = (it.run.next_offset for it in reversed(self._parts) if it.partition == partition)
        return next(found, None)

    def count_of(self, partition: int) -> int:
        return sum(it.count for it in self._parts if it.partition == partition)

    def forget_below(self, partition: int, offset: int) -> None:
        """These are gone from the stream."""
        for it in self._parts:
            if it.partition == partition:
                it.start = max(it.start, it.run.index_of(offset))
        self._parts = deque(it for it in self._parts if it.count)
        self.count = sum(it.count for it in self._parts)
        self._first = None

    def clear(self) -> None:
        self._parts.clear()
        self.count, self._first = 0, None
