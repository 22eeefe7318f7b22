"""A login on one connection: handshake, exchange, session (KIP-43, KIP-368)."""

import asyncio
import logging
import time
from typing import Final, NamedTuple

from streamlog.authn import bearer, plain, scram
from streamlog.authn.principal import Principal
from streamlog.authn.scram import ServerExchange
from streamlog.condition import Condition
from streamlog.errors import AuthenticationFailed
from streamlog.kafka.auth.authenticator import OAUTHBEARER, PLAIN, Authenticator
from streamlog.kafka.net.channel import RequestWait
from streamlog.wire.api_messages import Message
from streamlog.wire.error_codes import ErrorCode

logger = logging.getLogger(__name__)

LOGIN_FAILED: Final = Condition(
    "SL-0608",
    "login failed",
    "see who that is; several from one address are slowed down by themselves",
    meaning="A client gave a wrong password, token or user.",
)

LIFETIME_MS_MAX: Final = 2**53
NAME_CHARS_SHOWN: Final = 80


class Proved(NamedTuple):
    """What a login came to."""

    principal: Principal
    is_node: bool
    lifetime_ms: int
    """0: for as long as the connection."""


class _Scram:
    expires_s = None
    is_refused = False

    def __init__(self, exchange: ServerExchange) -> None:
        self._exchange = exchange

    @property
    def user(self) -> str | None:
        return self._exchange.user

    async def step(self, message: bytes) -> bytes:
        return self._exchange.step(message)


class _Plain:
    expires_s = None
    is_refused = False

    def __init__(self, authenticator: Authenticator) -> None:
        self.user: str | None = None
        self._authenticator = authenticator

    async def step(self, message: bytes) -> bytes:
        user, password = plain.read_message(message)
        kind, known = self._authenticator.of_plain(user)
        is_right = await asyncio.get_running_loop().run_in_executor(
            self._authenticator.threads, scram.is_password, kind, password, known.credentials[0]
        )
        if not is_right or known.is_decoy:
            raise AuthenticationFailed(scram.WRONG)
        self.user = user
        return b""


class _Bearer:
    def __init__(self, authenticator: Authenticator) -> None:
        self.user: str | None = None
        self.expires_s: float | None = None
        self._authenticator = authenticator
        self._refusal: AuthenticationFailed | None = None

    @property
    def is_refused(self) -> bool:
        return self._refusal is not None

    async def step(self, message: bytes) -> bytes:
        """A token that is not believed is answered by RFC 7628's error first, then refused."""
        if self._refusal is not None:
            raise self._refusal
        token = bearer.read_message(message)
        try:
            self.user, self.expires_s = self._authenticator.verified(token)
        except AuthenticationFailed as error:
            self._refusal = error
            return bearer.REFUSAL
        return b""


_Exchange = _Scram | _Plain | _Bearer
"""A step raises AuthenticationFailed, and the exchange is over then. ``user`` is proved by then, until
``expires_s``, in Unix time, if the proof has an end. ``is_refused``: the next step raises, whatever comes.
"""


class ServerLogin:
    """``proved`` is there when the last answer says that all went well.

    After a failure ``failed`` is set: the answer is sent, and the connection closed.
    """

    def __init__(self, authenticator: Authenticator, host: str) -> None:
        self.failed = False
        self._authenticator = authenticator
        self._host = host
        self._mechanism = ""  # of the first login, and so of every later one
        self._exchange: _Exchange | None = None

    def handshake(self, mechanism: str, version: int, *, encrypted: bool) -> Message:
        """Chooses the mechanism. Version 0 would have bare tokens follow: no client needs that now."""
        offered = self._authenticator.offered(encrypted=encrypted)
        code = ErrorCode.none
        if version == 0:
            code = ErrorCode.unsupported_version
        elif self._exchange is not None:
            code = ErrorCode.illegal_sasl_state
        elif mechanism not in offered or self._mechanism not in ("", mechanism):
            code = ErrorCode.unsupported_sasl_mechanism
        if code is ErrorCode.none:
            self._exchange = self._begin(mechanism)
            self._mechanism = mechanism
        else:
            self._fail(f"handshake for {mechanism[:NAME_CHARS_SHOWN]!r}: {code.name}")
        return {"error_code": code, "mechanisms": offered}

    async def authenticate(
        self, message: bytes, poll: RequestWait, present: Principal | None
    ) -> tuple[Message, Proved | None]:
        """``present``: who has logged in before, and must be the same now."""
        exchange = self._exchange
        if exchange is None:
            self._fail("no handshake came before")
            return _refused(ErrorCode.illegal_sasl_state, "SaslHandshake comes first"), None
        try:
            if exchange.is_refused:
                await exchange.step(message)  # raises; it has been counted
            async with self._authenticator.patience.examine(self._host) as attempt:
                answer = await exchange.step(message)
                if exchange.user is None:
                    attempt.failed = exchange.is_refused
                    return _accepted(answer, 0), None
                proved = self._proved(exchange, exchange.user, present)
        except AuthenticationFailed as error:
            self._fail(str(error))
            await _delayed(poll, self._authenticator.settings.failure_delay_ms)
            return _refused(ErrorCode.sasl_authentication_failed, str(error)), None
        self._exchange = None
        return _accepted(answer, proved.lifetime_ms), proved

    def _begin(self, mechanism: str) -> _Exchange:
        match mechanism:
            case "PLAIN":
                return _Plain(self._authenticator)
            case "OAUTHBEARER":
                return _Bearer(self._authenticator)
            case _:
                return _Scram(self._authenticator.scram(mechanism))

    def _proved(self, exchange: _Exchange, user: str, present: Principal | None) -> Proved:
        principal = Principal.user(user)
        if present is not None and present != principal:
            raise AuthenticationFailed(
                "a session stays its principal's: open a new connection as another"
            )
        is_node = self._mechanism not in (PLAIN, OAUTHBEARER) and self._authenticator.is_node(user)
        lifetimes_ms = []
        if exchange.expires_s is not None:
            left_ms = int((exchange.expires_s - time.time()) * 1000)
            lifetimes_ms.append(min(max(1, left_ms), LIFETIME_MS_MAX))
        if self._authenticator.settings.session_lifetime_ms:
            lifetimes_ms.append(self._authenticator.settings.session_lifetime_ms)
        return Proved(principal, is_node, min(lifetimes_ms, default=0))

    def _fail(self, problem: str) -> None:
        self.failed = True
        self._exchange = None
        extra = {"peer": self._host, "mechanism": self._mechanism, "problem": problem}
        logger.warning(LOGIN_FAILED, extra=extra)


async def _delayed(poll: RequestWait, delay_ms: int) -> None:
    """Unless the client goes, or the node stops."""
    timer = asyncio.get_running_loop().call_later(delay_ms / 1000, poll.end)
    try:
        while not poll.ended:
            await poll.wait()
    finally:
        timer.cancel()


def _accepted(answer: bytes, lifetime_ms: int) -> Message:
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "auth_bytes": answer,
        "session_lifetime": lifetime_ms,
    }


def _refused(code: ErrorCode, text: str) -> Message:
    return {
        "error_code": code,
        "error_message": text,
        "auth_bytes": b"",
        "session_lifetime": 0,
    }
