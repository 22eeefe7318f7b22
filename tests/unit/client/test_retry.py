"""Asking again: what is asked again, for how long, and what is said in the end."""

import pytest

from streamlog.client import retry
from streamlog.client.cluster import with_retries
from streamlog.errors import (
    FencedLeaderEpoch,
    GroupNotFound,
    NotLeader,
    RequestTimedOut,
    StreamlogError,
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "BACKOFF_MS", 1)


class Answers:
    """Errors to be raised one after the other, and then an answer."""

    def __init__(self, *errors: StreamlogError) -> None:
        self._errors = list(errors)
        self.count = 0

    async def __call__(self) -> str:
        self.count += 1
        if self._errors:
            raise self._errors.pop(0)
        return "answer"


async def test_the_first_answer_is_taken() -> None:
    answers = Answers()
    assert await with_retries(answers, 1_000) == "answer"
    assert answers.count == 1


async def test_what_may_pass_is_asked_again() -> None:
    answers = Answers(NotLeader("moved"), FencedLeaderEpoch("elected"))
    assert await with_retries(answers, 60_000) == "answer"
    assert answers.count == 3


async def test_what_does_not_pass_is_raised_at_once() -> None:
    answers = Answers(GroupNotFound("no such group"))
    with pytest.raises(GroupNotFound):
        await with_retries(answers, 60_000)
    assert answers.count == 1


async def test_patience_ends_with_the_last_reason() -> None:
    answers = Answers(NotLeader("moved"))
    with pytest.raises(RequestTimedOut, match=r"^s-0: moved, for 0 ms$"):
        await with_retries(answers, 0, about="s-0")
    with pytest.raises(RequestTimedOut, match=r"^moved, for 0 ms$"):
        await with_retries(Answers(NotLeader("moved")), 0)
