"""Which messages of a partition its consumers are done with: retention by interest, and work queues. Pure.

The coordinator of a stream's consumers tells the leader of each of its partitions what every consumer has come to, as
far as that is kept: an ``Interest``. All of them together are ``Interests``. The leader decides by them what goes.

By interest, a message stays while any consumer holds it. A consumer holds what it has still to deliver and its filters
match, and what is *open*: delivered and not acknowledged, or given up. Of a work queue, a message goes when a
consumer has done with it: it has delivered the message, and the message is not open. A consumer whose filters were
changed has done with what matches the new ones from ``begin`` on, and, of what was before, with what it had *carried*.

Invariants
- What was released stays released: a consumer never returns to a message. So a release that was decided may be
  carried out later, again, or by another leader.
- A consumer holds what it has not read, also where it has read messages at the same offsets that were lost with their
  leader: the leader cuts what it is told back to where its log is the one that was read (``Interest.below``).
- Nothing is released by interests that are older than others this leader has been told. A consumer that is made
  holds messages from the moment at which the leader has been told of it, and only then its client hears of it.

A decision looks at the messages for which anything has changed since the one before: those that have come, those that a
consumer has delivered, and those that are open no longer. Which of them match a filter, only the partition knows. So a
decision is a ``ReleaseQuestion``, and its answer.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Self

from streamlog.log.leader_epochs import EpochStart
from streamlog.record.offset_set import OffsetSet


class Interest(NamedTuple):
    """What one consumer has come to in one partition."""

    filters: tuple[str, ...]
    """None: every message."""
    next_offset: int
    """It has delivered what it wants of the messages below."""
    open: OffsetSet
    """Below ``next_offset``: not acknowledged, or given up."""
    begin: int = 0
    """Of a work queue: the filters hold from there on."""
    carried: OffsetSet = OffsetSet()
    """Of a work queue: what was open below ``begin`` when the filters became these."""
    epochs: tuple[EpochStart, ...] = ()
    """In which leader epochs the last messages below ``next_offset`` were written."""

    def below(self, end: int) -> "Interest":
        """What is left of it where the stream has other messages than it has read from ``end`` on."""
        if end >= self.next_offset:
            return self
        return self._replace(
            next_offset=end,
            open=self.open.between(0, end),
            begin=min(self.begin, end),
            carried=self.carried.between(0, end),
        )

    def json(self) -> dict[str, Any]:
        return {
            "filters": self.filters,
            "next_offset": self.next_offset,
            "open": text_of(self.open),
            "begin": self.begin,
            "carried": text_of(self.carried),
            "epochs": self.epochs,
        }

    @classmethod
    def of_json(cls, fields: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError, ValueError for what is none."""
        return cls(
            tuple(map(str, fields["filters"])),
            int(fields["next_offset"]),
            offsets_of(fields["open"]),
            int(fields["begin"]),
            offsets_of(fields["carried"]),
            tuple(EpochStart(int(epoch), int(at)) for epoch, at in fields.get("epochs", ())),
        )


def key_of(consumer: str, created_ms: int) -> str:
    """A consumer that is made again under its name is another one."""
    return f"{consumer} {created_ms}"


def name_of(key: str) -> str:
    return key.rpartition(" ")[0]


NOT_KEPT: Final = Interest((), 0, OffsetSet())
"""Of a consumer of which nothing is kept: it may want every message."""


class Version(NamedTuple):
    """Of what a coordinator tells: later ones are greater."""

    leader_epoch: int
    """In which it leads its partition of ``__consumer_state``."""
    number: int


class Interests(NamedTuple):
    """Of all consumers of a stream, in one partition."""

    version: Version
    is_queue: bool
    by_consumer: Mapping[str, Interest]
    """See ``key_of``."""

    def where(self, shared_end: Callable[[Interest], int]) -> Self:
        """Each as far as it has read this very stream."""
        cut = {key: it.below(shared_end(it)) for key, it in self.by_consumer.items()}
        return self._replace(by_consumer=cut)

    def json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "is_queue": self.is_queue,
            "by_consumer": {key: it.json() for key, it in self.by_consumer.items()},
        }

    @classmethod
    def of_json(cls, fields: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError, ValueError for what is none."""
        epoch, number = fields["version"]
        by_consumer = {
            str(key): Interest.of_json(it) for key, it in dict(fields["by_consumer"]).items()
        }
        return cls(Version(int(epoch), int(number)), bool(fields["is_queue"]), by_consumer)


def text_of(offsets: OffsetSet) -> str:
    """For JSON."""
    return base64.b64encode(offsets.encode()).decode()


def offsets_of(text: Any) -> OffsetSet:
    """What ``text_of`` wrote. Raises TypeError, ValueError."""
    return OffsetSet.decode(base64.b64decode(text, validate=True))


class Lookup(NamedTuple):
    """Which messages of ``[low, high)`` match."""

    filters: tuple[str, ...]
    low: int
    high: int


class ReleaseQuestion(NamedTuple):
    """What has to be known to decide."""

    interests: Interests
    end: int
    """The messages below are decided about."""
    candidates: OffsetSet
    lookups: Mapping[str, Lookup]
    """Of a work queue by consumer, by interest for each set of filters."""


class Releases:
    """Of one partition, under one leader.

    ``tell`` it what a coordinator says; ``ask``, look up, and ``decide``.
    """

    def __init__(self) -> None:
        self._told: Interests | None = None
        self._decided: tuple[Interests, int] | None = None
        """By what was decided last, and about the messages below which offset."""

    @property
    def told(self) -> Interests | None:
        """By what is decided now; None: nothing goes yet."""
        return self._told

    def tell(self, interests: Interests) -> bool:
        """False: a later coordinator, or this one, has told something later."""
        if self._told is not None and interests.version < self._told.version:
            return False
        self._told = interests
        return True

    def forget(self) -> None:
        """What was decided may not have been carried out: look at every message again."""
        self._decided = None

    def ask(self, start: int, end: int, gone: OffsetSet) -> ReleaseQuestion | None:
        """``start``, ``end``: of the messages that are committed; ``gone``: of them, those that are not there any more.
        None: there is nothing to decide.
        """
        told = self._told
        if told is None or self._decided == (told, end):
            return None
        candidates = self._changed(told, start, end)
        candidates.keep_between(start, end)
        candidates.remove_all(gone)
        if not told.is_queue:
            known = told.by_consumer.values()
            free_end = min((it.next_offset for it in known if not it.filters), default=end)
            candidates.keep_between(start, free_end)
            for it in known if candidates else ():
                if it.open:
                    candidates.remove_all(it.open)
        if not candidates:
            self._decided = told, end
            return None
        low, high = _ends(candidates)
        lookups = _parts_done(told, low, high) if told.is_queue else _parts_held(told, low, high)
        return ReleaseQuestion(told, end, candidates, lookups)

    def decide(
        self, question: ReleaseQuestion, matching: Mapping[str, OffsetSet]
    ) -> OffsetSet | None:
        """What goes; ``matching``: what each lookup has found. None: something else was told meanwhile, ask again."""
        told, candidates = question.interests, question.candidates
        if told is not self._told:
            return None
        self._decided = told, question.end
        if not told.is_queue:
            for found in matching.values():
                candidates.remove_all(found)
            return candidates
        released = OffsetSet()
        for key, it in told.by_consumer.items():
            done = matching.get(key, _NONE).copy()
            if not it.filters and it.begin < it.next_offset:
                done.update(candidates.between(it.begin, it.next_offset))
            done.update(it.carried)
            done.remove_all(it.open)
            released.update(done)
        released.keep_all(candidates)
        return released

    def _changed(self, told: Interests, start: int, end: int) -> OffsetSet:
        """The messages about which the decision may be another one now."""
        if self._decided is None:
            return OffsetSet.between_ends(start, end)
        before, decided_end = self._decided
        is_new = before.is_queue != told.is_queue
        if is_new or (told.is_queue and told.by_consumer.keys() - before.by_consumer.keys()):
            return OffsetSet.between_ends(start, end)
        changed = OffsetSet.between_ends(max(start, decided_end), end)
        for key, was in before.by_consumer.items():
            now = told.by_consumer.get(key)
            if now == was:
                continue
            if now is None or not _is_continued(was, now):
                return OffsetSet.between_ends(start, end)
            changed.update(OffsetSet.between_ends(was.next_offset, min(now.next_offset, end)))
            closed = was.open.copy()
            closed.remove_all(now.open)
            changed.update(closed)
        return changed


def _is_continued(was: Interest, now: Interest) -> bool:
    """It has gone on, and nothing else about it is different."""
    is_same = (was.filters, was.begin, was.carried) == (now.filters, now.begin, now.carried)
    return is_same and was.next_offset <= now.next_offset


def _ends(offsets: OffsetSet) -> tuple[int, int]:
    """The first one, and the one after the last; there are some."""
    runs = list(offsets.runs())
    return runs[0][0], runs[-1][1]


def _parts_done(told: Interests, low: int, high: int) -> dict[str, Lookup]:
    """Of a work queue: what consumers with filters may have done with."""
    parts = {
        key: Lookup(it.filters, max(low, it.begin), min(high, it.next_offset))
        for key, it in told.by_consumer.items()
        if it.filters
    }
    return {key: it for key, it in parts.items() if it.low < it.high}


def _parts_held(told: Interests, low: int, high: int) -> dict[str, Lookup]:
    """By interest: what consumers with filters have still to deliver. Of those with the same filters, the one that is
    behind the others holds what they do.
    """
    lows = dict[tuple[str, ...], int]()
    for it in told.by_consumer.values():
        if it.filters:
            lows[it.filters] = min(max(low, it.next_offset), lows.get(it.filters, high))
    return {
        " ".join(filters): Lookup(filters, first, high)
        for filters, first in lows.items()
        if first < high
    }


_NONE: Final = OffsetSet()
