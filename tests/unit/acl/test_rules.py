"""What a rule may say, and what it implies."""

import pytest

from streamlog.acl.authorizer import Authorizer, asking_host
from streamlog.acl.rules import CLUSTER_NAME, Operation, ResourceType, Rule, RuleBook
from streamlog.errors import InvalidRequest

TOPIC = ResourceType.TOPIC


def rule(permission: str = "allow", **more: object) -> Rule:
    fields = {"principal": "User:a", "operation": "read", "resource_type": "topic", "name": "t"}
    return Rule.of(permission=permission, **{**fields, **more})


def allows(operation: Operation, *rules: Rule, name: str = "t", host: str = "10.0.0.1") -> bool:
    return Authorizer((RuleBook.of(*rules),)).allows("User:a", host, operation, TOPIC, name)


@pytest.mark.parametrize("granted", ["read", "write", "delete", "alter", "describe", "all"])
def test_who_may_do_something_may_know_of_it(granted: str) -> None:
    assert allows(Operation.DESCRIBE, rule(operation=granted))


@pytest.mark.parametrize("granted", ["create", "describe_configs", "alter_configs"])
def test_the_rest_implies_no_describe(granted: str) -> None:
    assert not allows(Operation.DESCRIBE, rule(operation=granted))


def test_what_is_implied_is_not_denied_by_implication() -> None:
    assert allows(Operation.DESCRIBE, rule(), rule("deny", operation="write"))
    assert not allows(Operation.DESCRIBE, rule(), rule("deny", operation="describe"))
    assert allows(Operation.READ, rule(), rule("deny", operation="describe"))
    assert not allows(Operation.READ, rule(), rule("deny", operation="all"))


def test_deny_wins_whatever_the_patterns() -> None:
    wide = rule("deny", pattern_type="prefixed", name="ord")
    assert not allows(Operation.READ, rule(name="orders"), wide, name="orders")
    assert allows(Operation.READ, rule(name="*"), wide, name="t")
    everybody = rule("deny", principal="User:*", name="*")
    assert not allows(Operation.READ, rule(), everybody)


def test_hosts_have_one_spelling() -> None:
    assert rule(host="::ffff:10.0.0.1").host == "10.0.0.1"
    assert rule(host="2001:DB8::0:1").host == "2001:db8::1"
    assert allows(Operation.READ, rule(host="10.0.0.1"))
    assert not allows(Operation.READ, rule(host="10.0.0.1"), host="10.0.0.2")
    assert asking_host("::ffff:10.0.0.1") == "10.0.0.1"
    assert asking_host("fe80::1%eth0") == "fe80::1"
    assert asking_host("") == ""


def test_super_users_may_do_everything() -> None:
    authorizer = Authorizer((RuleBook.of(rule("deny", principal="User:*", name="*")),),
                            frozenset({"User:root"}))  # fmt: skip
    assert authorizer.allows("User:root", "", Operation.READ, TOPIC, "t")
    assert not authorizer.allows("User:roo", "", Operation.READ, TOPIC, "t")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"principal": "alice"}, "User:alice"),
        ({"principal": "User:" + "x" * 1_000}, "at most 1000"),
        ({"host": "example.org"}, "an address"),
        ({"host": ""}, "an address"),
        ({"operation": "idempotent_write"}, "not for a topic"),
        ({"operation": "dance"}, "operation"),
        ({"name": ""}, "1 to 250"),
        ({"name": "a\nb"}, "printable"),
        ({"name": "x" * 251}, "1 to 250"),
        ({"resource_type": "cluster", "operation": "alter"}, CLUSTER_NAME),
        ({"resource_type": "delegation_token"}, "resource_type"),
        ({"permission": "maybe"}, "permission"),
        ({"pattern_type": "match"}, "pattern_type"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(fields: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        rule(**fields)


def test_write_to_anything_needs_something_that_is_not_denied() -> None:
    def some(*rules: Rule) -> bool:
        return Authorizer((RuleBook.of(*rules),)).allows_some(
            "User:a", "10.0.0.1", Operation.WRITE, TOPIC
        )

    write = rule(operation="write", pattern_type="prefixed", name="a-")
    assert some(write)
    assert not some(rule())
    assert not some(write, rule("deny", operation="write", name="*"))
    assert not some(write, rule("deny", operation="all", pattern_type="prefixed", name="a"))
    assert some(write, rule("deny", operation="write", name="a-b"))
    assert some(write, rule("deny", operation="write", pattern_type="prefixed", name="a-b"))
    assert some(rule(operation="write", name="*"), rule("deny", operation="write", name="t"))
