"""Who was let in over HTTP, and would not be any more."""

import base64
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from streamlog.acl.rules import Rule, RuleBook
from streamlog.authn.principal import Principal
from streamlog.authn.session import Session
from streamlog.authz.audit import Audit
from streamlog.authz.service import AuthorizationService
from streamlog.config import AuthorizationSection
from streamlog.errors import AuthenticationFailed
from streamlog.http.access import HttpAccess, may_stay, sees_by

pytestmark = pytest.mark.filterwarnings("ignore:It is recommended to use web.RequestKey")

TOKEN = "a-token-of-some-length"
BASIC = "Basic " + base64.b64encode(b"bob:secret").decode()


class World:
    """Bob is a super user for as long as his password is known."""

    def __init__(self, tokens: Path) -> None:
        tokens.write_text(f"{TOKEN}\n")
        self.tokens = tokens
        self.passwords = {"bob": "secret"}
        settings = AuthorizationSection(super_users=("User:bob",))
        self.rules = RuleBook()
        authorization = AuthorizationService(settings, lambda: self.rules, Audit(), enforced=True)
        self.access = HttpAccess(authorization, token_file=tokens, log_in=self.log_in)
        self.request: web.Request | None = None

    async def log_in(self, user: str, password: str, host: str) -> Session:
        if self.passwords.get(user) != password:
            raise AuthenticationFailed("wrong user or password")
        return Session(Principal.user(user), host=host)

    async def answer(self, request: web.Request) -> web.Response:
        self.request = request
        return web.Response()

    async def stays(self) -> bool:
        assert self.request is not None
        return await may_stay(self.request)


@pytest.mark.parametrize("way", ["token", "password"])
async def test_who_was_let_in_stays_as_long_as_a_new_request_would_be(
    tmp_path: Path, way: str
) -> None:
    world = World(tmp_path / "tokens")
    app = web.Application(middlewares=[world.access.middleware])
    app.add_routes([web.get("/", world.answer), web.get("/healthz", world.answer)])
    shown = f"Bearer {TOKEN}" if way == "token" else BASIC
    async with TestClient(TestServer(app)) as client:
        async with client.get("/", headers={"Authorization": shown}) as answer:
            assert answer.status == 200
        assert await world.stays()
        world.tokens.write_text("another-token-of-some-length\n")
        world.passwords["bob"] = "changed"
        assert not await world.stays()
        async with client.get("/healthz") as answer:
            assert answer.status == 200
        assert await world.stays(), "nobody is asked there"


TOKEN_OF_EVE = "another-token-of-some-length"
EVE = "Basic " + base64.b64encode(b"eve:secret").decode()


@pytest.mark.parametrize("shown", [EVE, f"Bearer {TOKEN_OF_EVE}"])
async def test_a_user_needs_a_right_however_it_shows_who_it_is(tmp_path: Path, shown: str) -> None:
    """DESCRIBE on the cluster for the console, and on every topic for the metrics, which name them all."""
    world = World(tmp_path / "tokens")
    world.tokens.write_text(f"{TOKEN}\n{TOKEN_OF_EVE} eve\n")
    world.passwords["eve"] = "secret"
    app = web.Application(middlewares=[world.access.middleware])
    paths = ("/", "/metrics", "/metrics/partitions")
    app.add_routes([web.get(path, world.answer) for path in paths])

    async def statuses(authorization: str) -> list[int]:
        found = []
        for path in paths:
            async with client.get(path, headers={"Authorization": authorization}) as answer:
                found.append(answer.status)
        return found

    def seen() -> str | None:
        assert world.request is not None
        permissions = sees_by(world.request)
        return None if permissions is None else permissions.principal

    async with TestClient(TestServer(app)) as client:
        assert await statuses(shown) == [403, 403, 403]
        world.rules = RuleBook.of(of_eve("describe", "cluster", "kafka-cluster"))
        assert await statuses(shown) == [200, 403, 403]
        assert seen() == "User:eve"
        world.rules = world.rules.added(of_eve("describe", "topic", "*"))
        assert await statuses(shown) == [200, 200, 200]
        hidden = of_eve("describe", "topic", "secret", permission="deny")
        world.rules = world.rules.added(hidden)
        assert await statuses(shown) == [200, 403, 403]
        assert await statuses(f"Bearer {TOKEN}") == [200, 200, 200]
        assert seen() is None, "a token of no user is shown every name"


def of_eve(operation: str, kind: str, name: str, *, permission: str = "allow") -> Rule:
    return Rule.of(
        permission=permission,
        principal="User:eve",
        operation=operation,
        resource_type=kind,
        pattern_type="literal",
        name=name,
    )
