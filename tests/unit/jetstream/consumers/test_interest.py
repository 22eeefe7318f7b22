"""Retention by interest and of work queues, against an oracle that looks at every message each time."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.jetstream.consumers.interest import (
    NOT_KEPT,
    Interest,
    Interests,
    Lookup,
    Releases,
    Version,
)
from streamlog.log.leader_epochs import EpochStart
from streamlog.record.offset_set import OffsetSet

SUBJECTS = "xyz"
FILTERS = ((), ("x",), ("y",), ("z",), ("x", "y"))


@dataclass
class NaiveConsumer:
    """What a consumer knows of every message."""

    filters: tuple[str, ...]
    next_offset: int
    open: set[int] = field(default_factory=set)
    acknowledged: set[int] = field(default_factory=set)
    begin: int = 0
    carried: set[int] = field(default_factory=set)

    def matches(self, subject: str) -> bool:
        return not self.filters or subject in self.filters

    def interest(self) -> Interest:
        return Interest(
            self.filters,
            self.next_offset,
            OffsetSet(self.open),
            self.begin,
            OffsetSet(self.carried),
        )


class Stand:
    """A log, its consumers, and the leader that decides; what is told is copied as it is at that moment."""

    def __init__(self, *, is_queue: bool) -> None:
        self.is_queue = is_queue
        self.subjects: list[str] = []
        self.consumers: dict[str, NaiveConsumer] = {}
        self.releases = Releases()
        self.gone: set[int] = set()
        self.final: set[int] = set()
        """Gone on every replica, whatever leads."""
        self.start = 0
        self.number = 0
        self.made = 0
        self.held: list[NaiveConsumer] = []
        """As they were told last."""
        self.is_told = False

    def publish(self, subject: str) -> None:
        self.subjects.append(subject)

    def make(self, filters: tuple[str, ...], start: int) -> None:
        """At the start of the log, or at its end."""
        if self.is_queue:
            taken = [it.filters for it in self.consumers.values()]
            if any(not filters or not it or set(it) & set(filters) for it in taken):
                return
        self.made += 1
        offset = self.start if self.is_queue or not start else len(self.subjects)
        self.consumers[f"c{self.made}"] = NaiveConsumer(filters, offset)
        self.tell()  # before its client hears of it

    def chosen(self, number: int) -> NaiveConsumer | None:
        known = list(self.consumers.values())
        return known[number % len(known)] if known else None

    def deliver(self, number: int) -> None:
        it = self.chosen(number)
        while it is not None and it.next_offset < len(self.subjects):
            offset = it.next_offset
            it.next_offset += 1
            if it.matches(self.subjects[offset]) and offset not in self.gone:
                it.open.add(offset)
                assert offset not in it.acknowledged
                return

    def acknowledge(self, number: int, place: int) -> None:
        it = self.chosen(number)
        if it is not None and it.open:
            offset = sorted(it.open)[place % len(it.open)]
            it.open.remove(offset)
            it.acknowledged.add(offset)

    def delete(self, number: int) -> None:
        if self.consumers:
            name = list(self.consumers)[number % len(self.consumers)]
            self.have_gone()
            del self.consumers[name]
            if not self.is_queue:
                self.tell()

    def refilter(self, number: int, filters: tuple[str, ...]) -> None:
        it = self.chosen(number)
        if it is None:
            return
        if self.is_queue:
            others = [other.filters for other in self.consumers.values() if other is not it]
            if any(not filters or not other or set(other) & set(filters) for other in others):
                return
            self.have_gone()
            it.begin, it.carried = it.next_offset, set(it.open)
        it.filters = filters
        self.tell()

    def have_gone(self) -> None:
        """What is acknowledged goes first."""
        self.tell()
        self.look()
        self.final |= self.gone

    def tell(self) -> None:
        self.number += 1
        interests = {name: it.interest() for name, it in self.consumers.items()}
        assert self.releases.tell(Interests(Version(1, self.number), self.is_queue, interests))
        self.is_told = True
        self.held = [
            NaiveConsumer(
                it.filters,
                it.next_offset,
                set(it.open),
                set(it.acknowledged),
                it.begin,
                set(it.carried),
            )
            for it in self.consumers.values()
        ]

    def found(self, lookup: Lookup) -> OffsetSet:
        assert 0 <= lookup.low < lookup.high <= len(self.subjects)
        return OffsetSet(
            offset
            for offset in range(lookup.low, lookup.high)
            if self.subjects[offset] in lookup.filters and offset not in self.gone
        )

    def look(self) -> None:
        end = len(self.subjects)
        question = self.releases.ask(self.start, end, OffsetSet(self.gone))
        if question is None:
            released = set[int]()
        else:
            matching = {key: self.found(it) for key, it in question.lookups.items()}
            decided = self.releases.decide(question, matching)
            assert decided is not None
            released = set(decided)
        assert not released & self.gone
        assert released == self.expected() if self.is_told else not released
        self.gone |= released
        assert self.releases.ask(self.start, end, OffsetSet(self.gone)) is None
        while self.start in self.gone:
            self.start += 1

    def expected(self) -> set[int]:
        there = [it for it in range(self.start, len(self.subjects)) if it not in self.gone]
        if self.is_queue:
            return {it for it in there if any(it in one.acknowledged for one in self.held)}
        return {
            offset
            for offset in there
            if not any(
                offset in it.open
                or (offset >= it.next_offset and it.matches(self.subjects[offset]))
                for it in self.held
            )
        }

    def forget(self) -> None:
        """Another leader decides, and knows of nothing that was hidden but not gone."""
        self.releases = Releases()
        self.is_told = False
        self.gone = self.final | {it for it in self.gone if it < self.start}
        self.tell()


ACTS: dict[str, tuple[float, Callable[[Random], tuple[Any, ...]]]] = {
    "publish": (4, lambda it: (it.choice(SUBJECTS),)),
    "make": (1, lambda it: (it.choice(FILTERS), it.randrange(2))),
    "deliver": (6, lambda it: (it.randrange(5),)),
    "acknowledge": (4, lambda it: (it.randrange(5), it.randrange(9))),
    "delete": (0.3, lambda it: (it.randrange(5),)),
    "refilter": (0.5, lambda it: (it.randrange(5), it.choice(FILTERS))),
    "tell": (3, lambda it: ()),
    "look": (3, lambda it: ()),
    "forget": (0.3, lambda it: ()),
}
"""How often, and with what."""


@pytest.mark.parametrize("is_queue", [False, True])
@given(random=st.randoms(use_true_random=False), count=st.integers(1, 300))
def test_releases_are_those_of_the_oracle(is_queue: bool, random: Random, count: int) -> None:
    stand = Stand(is_queue=is_queue)
    weights = [weight for weight, _ in ACTS.values()]
    for name in random.choices(list(ACTS), weights, k=count):
        getattr(stand, name)(*ACTS[name][1](random))
    stand.tell()
    stand.look()


def interests(number: int, *, epoch: int = 1, **by_consumer: Interest) -> Interests:
    return Interests(Version(epoch, number), False, by_consumer)


def test_what_is_older_is_not_taken() -> None:
    releases = Releases()
    assert releases.tell(interests(7, epoch=2, c=NOT_KEPT))
    assert not releases.tell(interests(9, epoch=1)), "of a coordinator that was deposed"
    assert not releases.tell(interests(6, epoch=2))
    assert releases.ask(0, 10, OffsetSet()) is None
    assert releases.tell(interests(1, epoch=3))
    question = releases.ask(0, 10, OffsetSet())
    assert question is not None
    assert releases.decide(question, {}) == OffsetSet(range(10))


def test_nothing_is_decided_by_what_was_overtaken() -> None:
    releases = Releases()
    releases.tell(interests(1, c=Interest(("x",), 0, OffsetSet())))
    question = releases.ask(0, 10, OffsetSet())
    assert question is not None
    assert question.lookups == {"x": Lookup(("x",), 0, 10)}
    releases.tell(interests(2, c=NOT_KEPT))  # while the messages were looked up
    assert releases.decide(question, {"x": OffsetSet()}) is None
    assert releases.ask(0, 10, OffsetSet()) is None, "it may want all of them"


def test_nothing_goes_before_anything_is_told() -> None:
    assert Releases().ask(0, 10, OffsetSet()) is None


def test_what_a_coordinator_tells_travels() -> None:
    told = Interests(
        Version(3, 4), True, {"c 1": Interest(("x",), 9, OffsetSet((1, 5)), 4, OffsetSet((1,)))}
    )
    assert Interests.of_json(told.json()) == told
    with pytest.raises((KeyError, TypeError, ValueError)):
        Interests.of_json({**told.json(), "by_consumer": {"c": {"filters": 1}}})


def test_interest_ends_where_the_stream_is_another_one() -> None:
    interest = Interest(
        ("a",),
        20,
        OffsetSet((3, 12)),
        begin=15,
        carried=OffsetSet((1, 13)),
        epochs=(EpochStart(1, 0),),
    )
    assert interest.below(20) is interest
    assert interest.below(10) == interest._replace(
        next_offset=10, open=OffsetSet((3,)), begin=10, carried=OffsetSet((1,))
    )
    assert Interest.of_json(json.loads(json.dumps(interest.json()))) == interest
