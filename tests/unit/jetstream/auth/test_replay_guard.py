from types import SimpleNamespace
from typing import Any

import pytest

from streamlog.authz.signature import KEY, NONCE, TIME
from streamlog.errors import AuthenticationFailed, InvalidRequest, NoController, StreamlogError
from streamlog.jetstream.auth.identity import ReplayGuard
from streamlog.metadata.active_controller import NonceCache
from streamlog.metadata.commands import Command, Granted, SpendNonce

SIGNED = {KEY: "U", TIME: "5", NONCE: "n" * 16}


class Controller:
    """The memory of one, or what it raises."""

    def __init__(self, failure: StreamlogError | None = None) -> None:
        self.failure = failure
        self.spent = NonceCache()
        self.asked = 0

    async def request(self, command: Command) -> Granted:
        assert isinstance(command, SpendNonce)
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        refusal = self.spent.spend(
            command.signer,
            command.nonce,
            signed_ms=command.signed_ms,
            window_ms=command.window_ms,
            now_ms=5,
        )
        return Granted(0, {"refusal": refusal})


def guard_of(controller: Controller, window_ms: int) -> ReplayGuard:
    return ReplayGuard(controller, window_ms)  # type: ignore[arg-type]


def message(headers: dict[str, str]) -> Any:
    return SimpleNamespace(headers=headers)


async def test_a_signed_request_counts_once() -> None:
    replays = guard_of(Controller(), 1_000)
    await replays.check(message(SIGNED))
    with pytest.raises(AuthenticationFailed, match="has been used"):
        await replays.check(message(SIGNED))


async def test_what_is_not_signed_is_nobodys_affair() -> None:
    controller = Controller()
    await guard_of(controller, 1_000).check(message({}))
    await guard_of(controller, 1_000).check(message({"other": "header"}))
    assert controller.asked == 0


async def test_without_a_controller_nothing_is_done() -> None:
    with pytest.raises(NoController):
        await guard_of(Controller(NoController("none")), 1_000).check(message(SIGNED))


async def test_a_controller_of_before_does_not_know_it() -> None:
    """While nodes of two versions run, each remembers by itself, as it did."""
    await guard_of(Controller(InvalidRequest("not a command")), 1_000).check(message(SIGNED))
