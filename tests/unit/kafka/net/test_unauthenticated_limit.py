"""Who may be unauthenticated, for how long, and what is logged of a flood of them."""

import asyncio

import pytest

from streamlog.kafka.net import unauthenticated_limit as module
from streamlog.kafka.net.unauthenticated_limit import HandshakeTimedOut, UnauthenticatedLimit
from tests.kafka_node import until


class Left:
    def __init__(self) -> None:
        self.why: HandshakeTimedOut | None = None

    def leave(self, why: HandshakeTimedOut) -> None:
        self.why = why


async def test_who_is_late_has_to_leave_and_who_has_settled_stays() -> None:
    limit = UnauthenticatedLimit(10, timeout_ms=100)
    late, settled, later = Left(), Left(), Left()
    for each in (late, settled):
        assert limit.admit(each.leave)
    limit.settle(settled.leave)
    limit.settle(settled.leave)
    await asyncio.sleep(0.05)
    assert limit.admit(later.leave)
    await until(lambda: late.why is not None)
    assert str(late.why) == "no request in 100 ms"
    assert later.why is None, "each has its own time"
    await until(lambda: later.why is not None)
    assert settled.why is None
    assert len(limit) == 0
    limit.close()


async def test_when_it_is_full_the_oldest_makes_room_but_not_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit = UnauthenticatedLimit(2, timeout_ms=60_000)
    first, second, third = Left(), Left(), Left()
    assert limit.admit(first.leave)
    assert limit.admit(second.leave)
    assert not limit.admit(third.leave)
    assert first.why is None
    monkeypatch.setattr(module, "GRACE_S", 0.0)
    assert limit.admit(third.leave)
    assert str(first.why) == "2 others wait to be let in"
    assert second.why is None
    assert len(limit) == 2
    limit.close()
