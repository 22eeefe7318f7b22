"""The table of pending records does what a dict of them does."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamlog.delivery.pending_records import DUE, PendingRecord, PendingRecords
from streamlog.delivery.state_encoding import PendingState, columns_of

NOW_MS, STEP_MS = 5_000, 100

steps = st.integers(1, 3)
tickets = st.integers(DUE, 3)
deadlines = st.sampled_from([0, 4_999, 5_000, 5_001, 5_100, 5_101, 90_000])


class PendingTable(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ours = PendingRecords()
        self.known: dict[int, PendingRecord] = {}
        self.offset = self.sequence = 0

    @rule(gaps=st.lists(steps, max_size=40), deadline_ms=deadlines, ticket=tickets)
    def append_run(self, gaps: list[int], deadline_ms: int, ticket: int) -> None:
        offsets = []
        for gap in gaps:
            self.offset += gap
            offsets.append(self.offset)
        self.ours.append_run(offsets, self.sequence + 1, deadline_ms, ticket)
        for offset in offsets:
            self.sequence += 1
            self.known[offset] = PendingRecord(offset, self.sequence, 1, deadline_ms, ticket)

    @rule(gap=steps, count=st.integers(1, 3), deadline_ms=deadlines, ticket=tickets)
    def append(self, gap: int, count: int, deadline_ms: int, ticket: int) -> None:
        self.offset += gap
        self.sequence += gap
        record = PendingRecord(self.offset, self.sequence, count, deadline_ms, ticket)
        self.ours.append(record)
        self.known[self.offset] = record

    @precondition(lambda self: self.known)
    @rule()
    def append_below(self) -> None:
        last = self.known[max(self.known)]
        with pytest.raises(ValueError, match="does not rise"):
            self.ours.append(last)

    @rule(data=st.data(), count=st.integers(1, 3), deadline_ms=deadlines, ticket=tickets)
    def update(self, data: st.DataObject, count: int, deadline_ms: int, ticket: int) -> None:
        offset = self.some_offset(data)
        changes: dict[str, Any] = {"count": count, "deadline_ms": deadline_ms, "ticket": ticket}
        if offset in self.known:
            self.ours.update(offset, **changes)
            self.known[offset] = self.known[offset]._replace(**changes)
        else:
            with pytest.raises(KeyError):
                self.ours.update(offset, **changes)

    @rule(data=st.data(), size=st.sampled_from([1, 1, 1, 5, 200]))
    def remove(self, data: st.DataObject, size: int) -> None:
        low = self.some_offset(data)
        gone = [self.known.pop(it) for it in sorted(self.known) if low <= it < low + size]
        removed = self.ours.remove(low, low + size)
        assert removed.count == len(gone)
        assert removed.redelivered == sum(it.count > 1 for it in gone)
        assert removed.due == [it.sequence for it in gone if it.ticket == DUE]

    @rule(
        data=st.data(), size=st.sampled_from([1, 10, 500]), ticket=tickets, limit=st.integers(-1, 2)
    )
    def with_ticket(self, data: st.DataObject, size: int, ticket: int, limit: int) -> None:
        low = self.some_offset(data)
        found = [
            it
            for offset, it in sorted(self.known.items())
            if low <= offset < low + size and it.ticket == ticket
        ]
        assert self.ours.with_ticket(ticket, low, low + size, limit=limit) == (
            found if limit < 0 else found[:limit]
        )

    @rule(data=st.data())
    def find(self, data: st.DataObject) -> None:
        offset = self.some_offset(data)
        assert self.ours.find(offset) == self.known.get(offset)
        below = [it for it in self.known if it < offset]
        assert self.ours.last_before(offset) == (self.known[max(below)] if below else None)

    def some_offset(self, data: st.DataObject) -> int:
        return data.draw(st.integers(0, self.offset + 2))

    @invariant()
    def is_what_is_known(self) -> None:
        assert len(self.ours) == len(self.known)
        assert self.ours.first() == (self.known[min(self.known)] if self.known else None)

    @invariant()
    def columns(self) -> None:
        states = [
            PendingState(
                it.offset,
                it.sequence,
                it.count,
                None if it.ticket == DUE else max(0, -((NOW_MS - it.deadline_ms) // STEP_MS)),
            )
            for _, it in sorted(self.known.items())
        ]
        assert self.ours.columns(NOW_MS, STEP_MS) == columns_of(states)


TestPendingTable = PendingTable.TestCase
TestPendingTable.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
