import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from streamlog.errors import Overloaded
from streamlog.jetstream import request_queue
from streamlog.jetstream.connection import Request, RouterConnection
from streamlog.jetstream.request_queue import AT_ONCE_MAX, IN_A_TURN_MAX, RequestQueue
from streamlog.nats.router import Router


def request(number: int, size_bytes: int = 1) -> Request:
    connection = RouterConnection(Router(), payload_bytes_max=1)
    return Request(str(number), "reply", bytes(size_bytes), connection=connection)


@asynccontextmanager
async def answering(answer: Callable[[Request], Awaitable[None]]) -> AsyncIterator[RequestQueue]:
    queue = RequestQueue(answer)
    async with asyncio.TaskGroup() as group:
        queue.begin(group)
        yield queue
        queue.end()


async def test_first_come_first_served_and_not_too_many_at_once() -> None:
    order, busy, most = list[str](), set[str](), 0

    async def answer(it: Request) -> None:
        nonlocal most
        order.append(it.subject)
        busy.add(it.subject)
        most = max(most, len(busy))
        for _ in range(2 * AT_ONCE_MAX):  # one more is begun in each turn
            await asyncio.sleep(0)
        busy.remove(it.subject)

    async with answering(answer) as queue:
        for number in range(3 * AT_ONCE_MAX):
            queue.put(request(number))
        await queue.wait_all_done()
    assert order == [str(number) for number in range(3 * AT_ONCE_MAX)]
    assert most == AT_ONCE_MAX


async def test_one_that_waits_holds_up_no_other() -> None:
    free, others_done, answered = asyncio.Event(), asyncio.Event(), list[str]()

    async def answer(it: Request) -> None:
        if it.subject == "0":
            await free.wait()
        answered.append(it.subject)
        if len(answered) == 3:
            others_done.set()

    async with answering(answer) as queue:
        for number in range(4):
            queue.put(request(number))
        await others_done.wait()
        free.set()
        await queue.wait_all_done()
    assert answered == ["1", "2", "3", "0"]


async def test_others_have_their_turn_between_many_that_wait_for_nothing() -> None:
    answered = 0
    seen: list[int] = []

    async def answer(_: Request) -> None:
        nonlocal answered
        answered += 1

    async def other() -> None:
        while answered < 10 * IN_A_TURN_MAX:
            seen.append(answered)
            await asyncio.sleep(0)

    async with answering(answer) as queue:
        for number in range(10 * IN_A_TURN_MAX):
            queue.put(request(number))
        await other()
    assert all(after - before <= IN_A_TURN_MAX for before, after in itertools.pairwise(seen))
    assert len(seen) >= 10


async def test_what_waits_has_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_queue, "WAITING_MAX", 3)
    monkeypatch.setattr(request_queue, "WAITING_BYTES_MAX", 100)
    answered = list[str]()

    async def answer(it: Request) -> None:
        answered.append(it.subject)

    async with answering(answer) as by_number:
        for number in range(3):
            by_number.put(request(number))
        with pytest.raises(Overloaded):
            by_number.put(request(3))
        await by_number.wait_all_done()
        by_number.put(request(4))
        await by_number.wait_all_done()
    assert answered == ["0", "1", "2", "4"]
    async with answering(answer) as by_size:
        by_size.put(request(0, 100))
        with pytest.raises(Overloaded):
            by_size.put(request(1))
        await by_size.wait_all_done()
        by_size.put(request(2, 100))
        await by_size.wait_all_done()


async def test_what_needs_no_wait_is_answered_out_of_the_queue_a_few_in_a_turn() -> None:
    async def answer(_: Request) -> None: ...

    async with answering(answer) as queue:
        assert [queue.take_turn() for _ in range(IN_A_TURN_MAX + 2)] == [True] * IN_A_TURN_MAX + [
            False,
            False,
        ]
        queue.put(request(1))
        await queue.wait_all_done()
        await asyncio.sleep(0)
        assert queue.take_turn()
        queue.put(request(2))
        assert not queue.take_turn(), "it would overtake"
        await queue.wait_all_done()
