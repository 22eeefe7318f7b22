import asyncio

import pytest

from streamlog.errors import Overloaded
from streamlog.jetstream import api
from streamlog.jetstream.api import AT_ONCE_MAX, ConcurrencyLimit


async def test_first_come_first_served_and_not_too_many_at_once() -> None:
    taken, order, busy = ConcurrencyLimit(), list[int](), list[int]()

    async def ask(number: int) -> None:
        async with taken.turn(1):
            order.append(number)
            busy.append(number)
            assert len(busy) <= AT_ONCE_MAX
            await asyncio.sleep(0)
            busy.remove(number)

    async with asyncio.TaskGroup() as group:
        for number in range(3 * AT_ONCE_MAX):
            taken.admit(1)
            group.create_task(ask(number))
    assert order == list(range(3 * AT_ONCE_MAX))
    await taken.wait_all_done()


def test_what_waits_has_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "WAITING_MAX", 3)
    monkeypatch.setattr(api, "WAITING_BYTES_MAX", 100)
    by_number, by_size = ConcurrencyLimit(), ConcurrencyLimit()
    for _ in range(3):
        by_number.admit(0)
    by_size.admit(100)
    for full, size in ((by_number, 0), (by_size, 1)):
        with pytest.raises(Overloaded):
            full.admit(size)


async def test_the_end_waits_for_all_that_were_admitted() -> None:
    taken, done = ConcurrencyLimit(), list[int]()

    async def ask(number: int) -> None:
        async with taken.turn(1):
            await asyncio.sleep(0)
            done.append(number)

    for _ in range(2 * AT_ONCE_MAX):
        taken.admit(1)
    async with asyncio.TaskGroup() as group:
        for number in range(2 * AT_ONCE_MAX):
            group.create_task(ask(number))
        await taken.wait_all_done()
        assert len(done) == 2 * AT_ONCE_MAX
