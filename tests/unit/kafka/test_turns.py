import asyncio
import time

from streamlog.fairness import TURN_S, cooperatively


async def test_others_are_served_between_two_items() -> None:
    served = 0

    async def other() -> None:
        nonlocal served
        while True:
            served += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    found = []
    async for item in cooperatively(range(5)):
        found.append(item)
        before = time.monotonic()
        while time.monotonic() < before + 2 * TURN_S:
            pass
    task.cancel()
    assert found == list(range(5))
    assert served >= 5


async def test_what_is_quick_is_not_interrupted() -> None:
    nothing: list[str] = []
    assert [item async for item in cooperatively(nothing)] == []
    assert [item async for item in cooperatively("abc")] == ["a", "b", "c"]
