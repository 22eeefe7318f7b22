from streamlog.errors import NotLeader, StreamlogError
from streamlog.partition.pending_appends import PendingAppend, PendingAppends, Step
from tests.steps import acknowledge


class Heard:
    def __init__(self) -> None:
        self.told: list[int | str] = []

    def committed(self, base_offset: int) -> None:
        self.told.append(base_offset)

    def failed(self, error: StreamlogError) -> None:
        self.told.append(str(error))


def test_each_is_told_once_in_order() -> None:
    pending, heard, other = PendingAppends(), Heard(), Heard()
    for end, ack in ((2, heard), (5, other), (9, heard)):
        pending.add(PendingAppend(end, end - 1, 10, 0.0, ack))
    committed = pending.take_committed(5)
    assert [item.end_offset for item in committed] == [2, 5]
    acknowledge(Step(committed))
    assert (heard.told, other.told, pending.in_flight_bytes) == ([1], [4], 10)
    acknowledge(Step(failed=pending.take_all(), error=NotLeader("gone")))
    assert (heard.told, other.told, len(pending)) == ([1, "gone"], [4], 0)


def test_many_that_tell_the_same_one_do_not_pile_up() -> None:
    pending, nobody, heard = PendingAppends(), Heard(), Heard()
    for offset in range(1000):
        pending.add(PendingAppend(offset + 1, offset, 10, 0.0, nobody))
    pending.add(PendingAppend(1001, 1000, 10, 0.0, heard))
    assert (len(pending), pending.in_flight_bytes) == (2, 10_010)
    assert pending.take_committed(999) == []
    committed = pending.take_committed(1001)
    acknowledge(Step(committed))
    assert [item.base_offset for item in committed] == [0, 1000]
    assert (nobody.told, heard.told, pending.in_flight_bytes) == ([0], [1000], 0)
