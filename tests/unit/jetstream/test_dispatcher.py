"""Who asks gets what is his to see, also where what answers him is kept for the next request."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from streamlog.acl.rules import RuleBook
from streamlog.authn.principal import Principal
from streamlog.authn.session import Session
from streamlog.authz.audit import Audit
from streamlog.authz.service import AuthorizationService
from streamlog.config import AuthorizationSection
from streamlog.control.operation import Caller
from streamlog.jetstream import dispatcher as module
from streamlog.jetstream.dispatcher import ANYBODY, RequestDispatcher
from tests.kafka_node import KafkaNode
from tests.restricted import rule

ALICE, BOB = (Session(Principal.user(it)) for it in ("alice", "bob"))


@pytest.fixture
async def node() -> AsyncIterator[KafkaNode]:
    async with KafkaNode() as made:
        yield made


def dispatcher(node: KafkaNode) -> RequestDispatcher:
    service: Any = node.context.control_service
    return RequestDispatcher(service, domain="streamlog", now_ms=lambda: 0)


def caller(session: Session, *rules: str) -> Caller:
    book = RuleBook.of(*map(rule, rules))
    section = AuthorizationSection()
    authorization = AuthorizationService(section, lambda: book, Audit(), enforced=True)
    return Caller(session, authorization.access_of(session), by="NATS")


async def names(found: RequestDispatcher) -> list[str]:
    return list((await found.reply("STREAM.NAMES", b"", {}))["streams"])


async def test_each_caller_has_one_of_its_own(node: KafkaNode) -> None:
    await node.add_stream("orders")
    for_all = dispatcher(node)
    alice, bob = caller(ALICE, "describe topic orders"), caller(BOB)
    assert for_all.of(ANYBODY) is for_all
    assert for_all.of(alice) is for_all.of(alice)
    for _ in range(2):
        assert await names(for_all) == ["orders"]
        assert await names(for_all.of(alice)) == ["orders"]
        assert await names(for_all.of(bob)) == []


async def test_who_is_known_again_with_other_rights_has_those(node: KafkaNode) -> None:
    await node.add_stream("orders")
    for_all = dispatcher(node)
    assert await names(for_all.of(caller(ALICE, "describe topic orders"))) == ["orders"]
    assert await names(for_all.of(caller(ALICE))) == []


async def test_no_more_are_kept_than_the_limit(
    node: KafkaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CALLERS_KEPT_MAX", 2)
    for_all = dispatcher(node)
    callers = [caller(Session(Principal.user(f"user-{number}"))) for number in range(3)]
    first, second = for_all.of(callers[0]), for_all.of(callers[1])
    assert for_all.of(callers[0]) is first, "asked for last, so the other one goes"
    for_all.of(callers[2])
    assert len(for_all._of_callers) == 2
    assert for_all.of(callers[0]) is first
    assert for_all.of(callers[1]) is not second
