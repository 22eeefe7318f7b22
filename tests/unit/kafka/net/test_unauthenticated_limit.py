"""Who may be a newcomer, for how long, and what is logged of a flood of them."""

import asyncio

import pytest

from streamlog.kafka.net import unauthenticated_limit as module
from streamlog.kafka.net.close_log import CloseLog
from streamlog.kafka.net.unauthenticated_limit import HandshakeTimedOut, UnauthenticatedLimit
from tests.kafka_node import until


class Left:
    def __init__(self) -> None:
        self.why: HandshakeTimedOut | None = None

    def leave(self, why: HandshakeTimedOut) -> None:
        self.why = why


async def test_who_is_late_has_to_leave_and_who_has_settled_stays() -> None:
    newcomers = UnauthenticatedLimit(10, timeout_ms=100)
    late, settled, later = Left(), Left(), Left()
    for each in (late, settled):
        assert newcomers.admit(each.leave)
    newcomers.settle(settled.leave)
    newcomers.settle(settled.leave)
    await asyncio.sleep(0.05)
    assert newcomers.admit(later.leave)
    await until(lambda: late.why is not None)
    assert str(late.why) == "no request in 100 ms"
    assert later.why is None, "each has its own time"
    await until(lambda: later.why is not None)
    assert settled.why is None
    assert len(newcomers) == 0
    newcomers.close()


async def test_when_it_is_full_the_oldest_makes_room_but_not_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    newcomers = UnauthenticatedLimit(2, timeout_ms=60_000)
    first, second, third = Left(), Left(), Left()
    assert newcomers.admit(first.leave)
    assert newcomers.admit(second.leave)
    assert not newcomers.admit(third.leave)
    assert first.why is None
    monkeypatch.setattr(module, "GRACE_S", 0.0)
    assert newcomers.admit(third.leave)
    assert str(first.why) == "2 others wait to be let in"
    assert second.why is None
    assert len(newcomers) == 2
    newcomers.close()


def test_of_a_flood_one_line_a_second() -> None:
    now_s = 0.0
    closings = CloseLog(lambda: now_s)
    flood = {"peer": "p", "reason": "newcomer"}
    assert closings.told(flood) == flood
    for _ in range(1_000):
        assert closings.told(flood) is None
    assert closings.told({"reason": "tls"}) == {"reason": "tls"}, "each reason counts by itself"
    for _ in range(3):
        assert closings.told({"reason": "failure"}) == {"reason": "failure"}, "nobody floods those"
    now_s = 1.0
    assert closings.told(flood) == {**flood, "more_of_these": 1_000}
    now_s = 2.0
    assert closings.told(flood) == flood
