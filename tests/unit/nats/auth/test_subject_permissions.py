"""Subjects that a client may use: what no list of small tokens shows."""

import pytest

from streamlog.errors import InvalidSubject
from streamlog.nats.auth import subject_permissions
from streamlog.nats.auth.subject_permissions import (
    SYSTEM_RULES,
    PermissionRules,
    ReplyLimit,
    SubjectList,
    SubjectPermissions,
)


def permissions(*rules: PermissionRules) -> SubjectPermissions:
    return SubjectPermissions(rules, lambda: 0.0)


def test_system_subjects_are_for_no_client() -> None:
    found = permissions(PermissionRules(publish_allow=[">"], subscribe_allow=[">"]))
    assert not found.may_publish(b"$SYS.REQ.SERVER.PING")
    assert not found.may_subscribe(b"$SYS.>")
    assert not found.may_subscribe(b"$SYS.*")
    assert found.may_subscribe(b">")
    assert found.needs_filter(b">")
    assert found.needs_filter(b"*.a")
    assert not found.needs_filter(b"orders.>")
    assert found.delivery_denies(b"$SYS.ACCOUNT.x")
    assert not found.delivery_denies(b"orders.new")
    assert found.may_publish(b"$SYSTEM.a")


@pytest.mark.parametrize(
    "subject", [b"$SYS", b"$SYS.", b"$SYS.a.b", b"$SYSTEM.a", b"a.$SYS.b", b"a"]
)
def test_a_client_without_lists_may_publish_what_the_system_rules_allow(subject: bytes) -> None:
    free = permissions()
    assert free.is_free
    assert free.may_publish(subject) == SYSTEM_RULES.allows_publish(subject)
    assert not permissions(PermissionRules()).is_free


def test_system_subjects_are_not_answered_either() -> None:
    found = permissions(PermissionRules(replies=ReplyLimit()))
    found.delivered(b"$SYS.a")
    assert not found.may_publish(b"$SYS.a")


def test_a_subscription_knows_which_of_its_deliveries_are_denied() -> None:
    found = permissions(PermissionRules(subscribe_deny=["a.secret", "a.b q"]))
    assert found.denied_deliveries(b"orders.>") is None
    plain, grouped = found.denied_deliveries(b"a.*"), found.denied_deliveries(b"a.*", b"q")
    assert plain is not None
    assert grouped is not None
    assert [plain(it) for it in (b"a.secret", b"a.b", b"a.c")] == [True, False, False]
    assert [grouped(it) for it in (b"a.secret", b"a.b", b"a.c")] == [True, True, False]


def test_the_queue_group_of_servers_is_for_no_client() -> None:
    assert not permissions().may_subscribe(b"a", b"_sys_")


def test_wildcards_of_a_message_are_tokens() -> None:
    found = permissions(PermissionRules(publish_allow=["a.*"], publish_deny=["a.b"]))
    assert found.may_publish(b"a.*")
    assert found.may_publish(b"a.>")
    assert not found.may_publish(b"a.>.c")
    assert not permissions(PermissionRules(publish_deny=["a.*"])).may_publish(b"a.>")


def test_a_subscription_to_more_than_is_allowed_is_refused() -> None:
    found = permissions(PermissionRules(subscribe_allow=["a.*", "a.*.*"]))
    assert found.may_subscribe(b"a.*")
    assert not found.may_subscribe(b"a.>")
    assert not found.may_subscribe(b"*.a")


def test_all_rules_have_to_allow() -> None:
    found = permissions(
        PermissionRules(publish_allow=["a.>", "b"]), PermissionRules(publish_deny=["a.secret"])
    )
    assert found.may_publish(b"a.x")
    assert not found.may_publish(b"a.secret")
    assert not found.may_publish(b"c")


def test_an_answer_needs_all_rules_that_refuse_to_allow_it() -> None:
    answering, strict = PermissionRules(replies=ReplyLimit()), PermissionRules(publish_deny=["c"])
    found = permissions(answering, strict)
    found.delivered(b"b")
    found.delivered(b"c")
    assert found.may_publish(b"b")
    assert not found.may_publish(b"c")


def test_negative_limits_of_answers_are_none() -> None:
    now = [0.0]
    rules = PermissionRules(replies=ReplyLimit(-1, -1.0))
    found = SubjectPermissions([rules], lambda: now[0])
    found.delivered(b"inbox")
    now[0] = 1e9
    assert all(found.may_publish(b"inbox") for _ in range(1_000))


def test_reply_subjects_are_forgotten_when_they_are_too_many_or_too_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subject_permissions, "REPLIES_MAX", 2)
    now = [0.0]
    rules = PermissionRules(replies=ReplyLimit(1, 10.0))
    found = SubjectPermissions([rules], lambda: now[0])
    for reply in (b"a", b"b", b"c"):
        found.delivered(reply)
    assert not found.may_publish(b"a")
    assert found.may_publish(b"c")
    now[0] = 10.5
    assert not found.may_publish(b"b")


def test_answers_do_not_grow_without_end() -> None:
    found = permissions(PermissionRules(publish_allow=["a.>"]))
    for number in range(10_000):
        assert found.may_publish(b"a.%d" % number)
        assert not found.delivery_denies(b"b.%d" % number)
    assert len(found._refusals) <= subject_permissions.ANSWERS_MAX
    assert len(found._denials) <= subject_permissions.ANSWERS_MAX


def test_a_lookup_of_thousands_of_entries_and_tokens_is_short() -> None:
    deep = ".".join(["a"] * 500)
    entries = SubjectList([f"x.{number}.*" for number in range(4_096)] + [deep])
    assert entries.matching(b"x.4095.y").plain
    assert not entries.matching(b"x.4096.y").plain
    assert entries.matching(deep.encode()).plain
    wild = b".".join([b"*"] * 500)
    assert entries.overlaps(wild)
    assert SubjectList([wild.decode()]).including(wild).plain


@pytest.mark.parametrize("subject", ["", "a b c", "a..b", ".a", "a.", "a.>.b", "> q", "a\0b"])
def test_what_is_no_subject_is_refused(subject: str) -> None:
    with pytest.raises(InvalidSubject):
        PermissionRules(publish_allow=[subject])


def test_a_wildcard_inside_of_a_token_is_none() -> None:
    found = permissions(PermissionRules(publish_allow=["a*.b>"]))
    assert found.may_publish(b"a*.b>")
    assert not found.may_publish(b"ab.bc")


def test_rules_are_values() -> None:
    one = PermissionRules(publish_allow=["a"], replies=ReplyLimit())
    same = PermissionRules(publish_allow=["a"], replies=ReplyLimit())
    assert one == same
    assert hash(one) == hash(same)
    assert one != PermissionRules(publish_allow=["a"])
