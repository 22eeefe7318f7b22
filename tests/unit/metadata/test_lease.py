from streamlog.metadata.lease import Lease


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def lease(clock: Clock) -> tuple[Lease, list[bool]]:
    told: list[bool] = []
    made = Lease(2_000, clock=clock)
    made.add_listener(told.append)
    return made, told


def test_it_begins_without() -> None:
    assert not lease(Clock())[0].held


def test_it_is_counted_from_when_the_heartbeat_was_sent() -> None:
    clock = Clock()
    it, told = lease(clock)
    it.extend(99.0)
    clock.now = 100.9
    assert it.held
    clock.now = 101.0
    assert not it.held
    assert told == [True]
    it.tell()
    assert told == [True, False]


def test_an_older_heartbeat_takes_nothing_away() -> None:
    clock = Clock()
    it, _ = lease(clock)
    it.extend(100.0)
    it.extend(98.5)
    clock.now = 101.5
    assert it.held


def test_it_comes_back() -> None:
    clock = Clock()
    it, told = lease(clock)
    it.extend(100.0)
    clock.now = 103.0
    it.tell()
    it.extend(103.0)
    assert it.held
    assert told == [True, False, True]


def test_that_it_is_back_is_told_although_nobody_noticed_that_it_was_away() -> None:
    clock = Clock()
    it, told = lease(clock)
    it.extend(100.0)
    clock.now = 103.0
    assert not it.held, "who asked was refused"
    it.extend(103.0)
    it.extend(103.5)
    assert told == [True, True]


def test_for_ever_ends_where_there_are_others() -> None:
    clock = Clock()
    it, _ = lease(clock)
    it.hold_for_ever()
    clock.now = 1e9
    assert it.held
    it.extend(1e9)
    clock.now = 1e9 + 3
    assert not it.held


def test_it_can_be_ended() -> None:
    it, told = lease(Clock())
    it.extend(100.0)
    it.end()
    assert not it.held
    assert told == [True, False]
