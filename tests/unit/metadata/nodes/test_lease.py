import subprocess
import sys

import pytest

from streamlog.metadata.nodes.lease import Lease


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def lease(clock: Clock) -> tuple[Lease, list[bool]]:
    told: list[bool] = []
    made = Lease(2_000, 3_000, clock=clock)
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


def test_an_answer_that_comes_too_late_does_not_hide_that_it_has_run_out() -> None:
    clock = Clock()
    it, told = lease(clock)
    it.extend(100.0)
    clock.now = 103.0
    it.extend(100.5)
    assert told == [True, False]


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


@pytest.mark.parametrize(
    ("unconfirmed_ms", "until"), [(0, 102.0), (500, 102.0), (900, 101.6), (30_000, 100.0)]
)
def test_a_controller_that_may_have_been_replaced_lends_less(
    unconfirmed_ms: int, until: float
) -> None:
    """It ends before a session of its successor's can, which is one second longer."""
    clock = Clock()
    it, _ = lease(clock)
    it.extend(100.0, unconfirmed_ms)
    assert it.left_s == pytest.approx(until - 100.0) or not it.held


def test_it_runs_out_while_the_machine_is_suspended() -> None:
    """In a time namespace that was suspended for a day, which CLOCK_MONOTONIC does not show."""
    program = (
        "import time; from streamlog.clock import clock_ms;"
        "from streamlog.metadata.nodes.lease import Lease;"
        "lease = Lease(2_000, 3_000); lease.extend(time.monotonic());"
        "print(lease.held, clock_ms() - time.monotonic_ns() // 1_000_000 > 86_000_000)"
    )
    inside = ["unshare", "--user", "--map-root-user", "--time", "--boottime", "86400"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no time namespaces")
    done = subprocess.run(
        [*inside, sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "True"]


def test_what_was_lent_since_the_disk_hangs_does_not_count() -> None:
    clock = Clock()
    it, told = lease(clock)
    it.extend(100.0)
    it.count_from(98.5)
    clock.now = 100.4
    assert it.held
    clock.now = 100.5
    assert not it.held
    it.extend(100.4)
    it.count_from(98.0)
    assert not it.held
    assert not told[-1]
