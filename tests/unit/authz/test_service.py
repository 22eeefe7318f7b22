"""The rules in force: of the metadata and of the file, each as it is now."""

import asyncio
import os
from pathlib import Path

import pytest

from streamlog.acl.rules import Operation, RuleBook
from streamlog.authn.principal import Principal
from streamlog.authn.session import Session
from streamlog.authz import service as module
from streamlog.authz.permissions import Permissions
from streamlog.authz.service import AuthorizationService
from streamlog.config import AuthorizationSection
from streamlog.errors import ConfigError, StreamNotFound, TopicForbidden
from tests.kafka_node import until
from tests.restricted import ALICE, Heard, rule

ENTRY = (
    '[[{word}]]\nprincipals = ["User:alice"]\noperations = ["{operation}"]\ntopics = ["{topic}"]\n'
)


class World:
    def __init__(
        self, file: Path | None = None, *, enforced: bool = True, **settings: object
    ) -> None:
        self.rules = RuleBook()
        self.audit = Heard()
        section = AuthorizationSection.model_validate({"rules_file": file, **settings})
        self.authorization = AuthorizationService(
            section, lambda: self.rules, self.audit, enforced=enforced
        )

    def access(self, session: Session = ALICE) -> Permissions:
        access = self.authorization.access_of(session)
        assert access is not None
        return access


def test_nobody_is_asked_where_nothing_is_enforced_and_nodes_never() -> None:
    assert World(enforced=False).authorization.access_of(ALICE) is None
    assert World().authorization.access_of(ALICE._replace(is_node=True)) is None


def test_what_is_taken_away_is_gone_at_once() -> None:
    world = World()
    access = world.access()
    assert not access.allows_topic(Operation.READ, "x")
    world.rules = world.rules.added(rule("read topic x"))
    assert access.allows_topic(Operation.READ, "x")
    assert access.sees("x")
    world.rules = RuleBook()
    assert not access.allows_topic(Operation.READ, "x")
    assert not access.sees("x")


def test_the_authorizer_is_the_same_until_a_rule_changes() -> None:
    world = World()
    first = world.authorization.authorizer
    assert world.authorization.authorizer is first
    world.rules = world.rules.added(rule("read topic x"))
    assert world.authorization.authorizer is not first


def test_file_and_metadata_count_together(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(
        ENTRY.format(word="allow", operation="read", topic="x")
        + ENTRY.format(word="deny", operation="read", topic="y")
    )
    world = World(path)
    world.authorization.load()
    world.rules = RuleBook.of(rule("read topic y"), rule("read topic z"))
    access = world.access()
    assert [access.allows_topic(Operation.READ, it) for it in "xyz"] == [True, False, True]


async def test_a_file_is_read_again_and_a_wrong_one_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "CHECK_S", 0.001)
    path = tmp_path / "rules.toml"
    path.write_text(ENTRY.format(word="allow", operation="read", topic="x"))
    world = World(path)
    world.authorization.load()
    access = world.access()
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(world.authorization.run())
        replace_file(path, "[[allow")
        await until(lambda: any("not read again" in it.message for it in caplog.records))
        assert access.allows_topic(Operation.READ, "x")
        replace_file(path, ENTRY.format(word="allow", operation="read", topic="y"))
        await until(lambda: not access.allows_topic(Operation.READ, "x"))
        assert access.allows_topic(Operation.READ, "y")
        watching.cancel()


def replace_file(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)  # noqa: PTH105 - as an operator would


def test_a_wrong_file_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        World(tmp_path / "none").authorization.load()


def test_without_describe_there_is_no_such_stream() -> None:
    world = World()
    world.rules = RuleBook.of(rule("describe topic seen"))
    access = world.access()
    with pytest.raises(TopicForbidden, match="may not read"):
        access.check_topic(Operation.READ, "seen")
    with pytest.raises(StreamNotFound, match="there is no stream 'hidden'"):
        access.check_topic(Operation.READ, "hidden")
    assert [(it.operation, it.name) for it in world.audit.refusals] == [
        ("read", "seen"), ("read", "hidden"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("subject", "rules", "allowed"),
    [
        ("orders", ("create topic orders",), True),
        ("orders.eu", ("create topic orders",), False),
        ("orders.eu", ("create topic orders*",), True),
        ("orders.>", ("create topic orders.*",), True),
        ("orders.>", ("create topic orders.eu*",), False),
        ("orders.*.new", ("create topic orders.*",), True),
        (">", ("create topic orders*",), False),
        (">", ("create topic *",), True),
        (">", ("create cluster kafka-cluster",), True),
    ],
)
def test_a_subject_needs_create(subject: str, rules: tuple[str, ...], allowed: bool) -> None:
    world = World()
    world.rules = RuleBook.of(*map(rule, rules))
    if allowed:
        world.access().check_subject(subject)
    else:
        with pytest.raises(TopicForbidden, match="CREATE"):
            world.access().check_subject(subject)


def test_what_is_denied_below_a_wildcard_denies_it() -> None:
    world = World()
    world.rules = RuleBook.of(
        rule("create topic orders.*"), rule("create topic orders.secret", "deny")
    )
    with pytest.raises(TopicForbidden):
        world.access().check_subject("orders.>")
    world.access().check_subject("orders.eu.>")


def test_super_users_are_named_with_their_kind() -> None:
    with pytest.raises(ValueError, match="User:admin"):
        AuthorizationSection(super_users=("admin",))
    access = World(super_users=("User:alice",)).access()
    assert access.allows_cluster(Operation.ALTER)
    access = World(super_users=("User:alice",)).access(Session(Principal.user("bob")))
    assert not access.allows_cluster(Operation.ALTER)
