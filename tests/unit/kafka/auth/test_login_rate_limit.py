"""Logins that come at once: no more are examined than may fail, and all that are right get in."""

import asyncio

import pytest

from streamlog.errors import AuthenticationFailed
from streamlog.kafka.auth.login_rate_limit import LoginRateLimit, place_of


class Listener:
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
    listener = Listener(3)
    guesses = [asyncio.ensure_future(listener.attempt(n)) for n in range(40)]
    await settle()
    for number in range(3):
        listener.end(number, right=False)
    assert await asyncio.gather(*guesses) == [False] * 40
    assert listener.examined == [0, 1, 2]
    assert not listener.patience._waiting


async def test_however_many_are_right_at_once_all_are_let_in() -> None:
    listener = Listener(3)
    logins = [asyncio.ensure_future(listener.attempt(n)) for n in range(40)]
    for number in range(40):
        await settle()
        listener.end(number, right=True)
    assert await asyncio.gather(*logins) == [True] * 40
    assert not listener.patience._waiting


async def test_who_gives_up_while_waiting_does_not_stop_the_others() -> None:
    listener = Listener(1)
    logins = [asyncio.ensure_future(listener.attempt(n)) for n in range(4)]
    await settle()
    logins[1].cancel()
    await settle()
    listener.end(0, right=True)
    logins[2].cancel()  # it was woken, and has not run since
    await settle()
    listener.end(3, right=True)
    assert await logins[3]
    assert listener.examined == [0, 3]
    assert not listener.patience._waiting


async def test_who_goes_while_it_is_examined_has_failed() -> None:
    listener = Listener(1)
    login = asyncio.ensure_future(listener.attempt(0))
    await settle()
    login.cancel()
    await settle()
    with pytest.raises(AuthenticationFailed, match="wait for"):
        async with listener.patience.examine("10.0.0.1"):
            pass
    assert not await listener.attempt(1)
    other = asyncio.ensure_future(listener.attempt(2, host="10.0.0.2"))
    await settle()
    listener.end(2, right=True)
    assert await other


async def test_addresses_that_one_host_may_take_at_will_are_one() -> None:
    limit = LoginRateLimit(1)
    async with limit.examine("2001:db8::1") as attempt:
        attempt.failed = True
    with pytest.raises(AuthenticationFailed):
        async with limit.examine("2001:db8::ffff:2"):
            pass
    async with limit.examine("2001:db8:0:1::1"):
        pass
    assert place_of("::ffff:10.0.0.1") != place_of("::ffff:10.0.0.2")
    assert place_of("10.0.0.1") != place_of("10.0.0.2")
    assert place_of("not an address") == "not an address"
