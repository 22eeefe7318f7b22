"""Waiting in words, within a limit."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import pytest

from streamlog.cli.cluster import waiting
from streamlog.cli.cluster.waiting import wait_until
from streamlog.errors import InvalidRequest, NoController, RequestTimedOut, StreamlogError


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "POLL_S", 0.001)


def answers(said: Iterable[str | StreamlogError | None]) -> Callable[[], Awaitable[str | None]]:
    """One after the other."""
    left = iter(said)

    async def question() -> str | None:
        answer = next(left)
        if isinstance(answer, StreamlogError):
            raise answer
        return answer

    return question


async def test_it_says_what_it_waits_for_when_that_changes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await wait_until(answers(["2 left", "2 left", "1 left", None]), None)
    assert capsys.readouterr() == ("", "waiting: 2 left\nwaiting: 1 left\n")


async def test_what_is_done_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    await wait_until(answers([None]), 0)
    assert capsys.readouterr().err == ""


async def test_a_controller_that_is_away_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    await wait_until(answers([NoController("nobody decides"), None]), 10)
    assert capsys.readouterr().err == "waiting: nobody decides\n"


async def test_what_will_not_come_is_not_waited_for() -> None:
    with pytest.raises(InvalidRequest, match="no such thing"):
        await wait_until(answers([InvalidRequest("no such thing")]), None)


async def test_a_limit_is_kept() -> None:
    async def never() -> str | None:
        await asyncio.sleep(0)
        return "one more"

    with pytest.raises(RequestTimedOut, match=r"^not within 0\.01 s: one more$"):
        await wait_until(never, 0.01)
