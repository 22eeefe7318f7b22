from streamlog.errors import NoController, Overloaded, RequestTimedOut, StreamlogError
from streamlog.metadata.forwarding import Granted
from streamlog.metadata.quorum.pending_decisions import Decided, PendingDecisions


class Askers:
    """What each was answered."""

    def __init__(self) -> None:
        self.granted: list[tuple[str, int]] = []
        self.failed: list[tuple[str, type[StreamlogError]]] = []
        self.pending: PendingDecisions[str] = PendingDecisions(self._grant, self._fail)

    def _grant(self, asker: str, granted: Granted) -> None:
        self.granted.append((asker, granted.offset))

    def _fail(self, asker: str, error: StreamlogError) -> None:
        self.failed.append((asker, type(error)))


def test_a_decision_is_granted_when_it_is_committed() -> None:
    askers = Askers()
    askers.pending.decided([Decided(5, 7, {}, "a"), Decided(7, 8, {}, "b")], 5)
    askers.pending.written(8)
    askers.pending.committed(6)
    assert askers.granted == []
    askers.pending.committed(7)
    assert askers.granted == [("a", 7)]
    askers.pending.give_up(NoController("another leads"))
    assert askers.failed == [("b", NoController)]


def test_what_was_not_written_is_not_granted_when_others_take_its_offsets() -> None:
    askers = Askers()
    askers.pending.decided([Decided(5, 6, {}, "a")], 5)
    askers.pending.refuse_unwritten(Overloaded("no files"), 5)
    askers.pending.decided([Decided(5, 6, {}, "b")], 5)
    askers.pending.written(6)
    askers.pending.committed(6)
    assert askers.granted == [("b", 6)]
    assert askers.failed == [("a", Overloaded)]


def test_of_what_was_written_in_part_nobody_says_that_nothing_was() -> None:
    askers = Askers()
    askers.pending.decided([Decided(5, 8, {}, "a"), Decided(8, 9, {}, "b")], 5)
    askers.pending.written(7)
    askers.pending.refuse_unwritten(Overloaded("no files"), 7)
    askers.pending.committed(9)
    assert askers.granted == []
    assert askers.failed == [("a", RequestTimedOut), ("b", Overloaded)]


def test_where_nothing_is_written_what_it_was_decided_upon_must_be_committed() -> None:
    askers = Askers()
    askers.pending.decided([Decided(5, 5, {}, "a")], 5)
    askers.pending.committed(4)
    assert askers.granted == []
    askers.pending.committed(5)
    assert askers.granted == [("a", 5)]
