"""Logins that come at once: no more are examined than may fail, and all that are right get in."""

import asyncio

import pytest

from streamlog.errors import AuthenticationFailed
from streamlog.kafka.auth.login_rate_limit import LoginRateLimit


class Door:
    """Attempts that are examined until they are told how they end."""

    def __init__(self, failures_max: int) -> None:
        self.patience = LoginRateLimit(failures_max)
        self.examined: list[int] = []
        self.ends: dict[int, asyncio.Future[bool]] = {}

    async def attempt(self, number: int, host: str = "10.0.0.1") -> bool:
        """Whether it was let in."""
        try:
            async with self.patience.examine(host):
                self.examined.append(number)
                self.ends[number] = asyncio.get_running_loop().create_future()
                if not await self.ends[number]:
                    raise AuthenticationFailed("wrong")
        except AuthenticationFailed:
            return False
        return True

    def end(self, number: int, *, right: bool) -> None:
        self.ends[number].set_result(right)


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_no_more_guesses_are_examined_than_may_fail() -> None:
    door = Door(3)
    guesses = [asyncio.ensure_future(door.attempt(n)) for n in range(40)]
    await settle()
    for number in range(3):
        door.end(number, right=False)
    assert await asyncio.gather(*guesses) == [False] * 40
    assert door.examined == [0, 1, 2]
    assert not door.patience._waiting


async def test_however_many_are_right_at_once_all_are_let_in() -> None:
    door = Door(3)
    logins = [asyncio.ensure_future(door.attempt(n)) for n in range(40)]
    for number in range(40):
        await settle()
        door.end(number, right=True)
    assert await asyncio.gather(*logins) == [True] * 40
    assert not door.patience._waiting


async def test_who_gives_up_while_waiting_does_not_stop_the_others() -> None:
    door = Door(1)
    logins = [asyncio.ensure_future(door.attempt(n)) for n in range(4)]
    await settle()
    logins[1].cancel()
    await settle()
    door.end(0, right=True)
    logins[2].cancel()  # it was woken, and has not run since
    await settle()
    door.end(3, right=True)
    assert await logins[3]
    assert door.examined == [0, 3]
    assert not door.patience._waiting


async def test_who_goes_while_it_is_examined_has_failed() -> None:
    door = Door(1)
    login = asyncio.ensure_future(door.attempt(0))
    await settle()
    login.cancel()
    await settle()
    with pytest.raises(AuthenticationFailed, match="wait for"):
        async with door.patience.examine("10.0.0.1"):
            pass
    assert not await door.attempt(1)
    other = asyncio.ensure_future(door.attempt(2, host="10.0.0.2"))
    await settle()
    door.end(2, right=True)
    assert await other
