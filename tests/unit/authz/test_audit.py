"""The audit log: one line each, a flood told by its number, no secret."""

import json
import logging

import pytest

from streamlog.acl.rules import Operation, ResourceType
from streamlog.app.logs import JsonLines
from streamlog.authn.principal import Principal
from streamlog.authn.session import Session
from streamlog.authz import audit as module
from streamlog.authz.audit import Audit, AuditedRefusal

ALICE = Session(Principal.user("alice"), "10.0.0.1", "app")


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def refusal(name: str = "orders") -> AuditedRefusal:
    return AuditedRefusal("User:alice", "10.0.0.1", Operation.READ, ResourceType.TOPIC, name)


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [json.loads(JsonLines().format(it)) for it in caplog.records]


@pytest.fixture(autouse=True)
def _heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "streamlog.audit")


def test_a_refusal_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    Audit().refused(refusal())
    (line,) = lines(caplog)
    del line["time"]
    assert line == {
        "level": "warning", "logger": "streamlog.audit", "event": "refused",
        "principal": "User:alice", "host": "10.0.0.1", "operation": "read",
        "resource_type": "topic", "resource": "orders",
    }  # fmt: skip


def test_the_same_again_is_told_by_its_number(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    audit = Audit(now_s=clock)
    for _ in range(5):
        audit.refused(refusal())
    audit.refused(refusal("ships"))
    assert [it["resource"] for it in lines(caplog)] == ["orders", "ships"]
    clock.now_s += module.REPEAT_S
    audit.refused(refusal())
    assert lines(caplog)[-1]["repeated"] == 4


def test_a_flood_is_suppressed_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    audit = Audit(lines_per_s=3, now_s=clock)
    for number in range(10):
        audit.refused(refusal(f"t{number}"))
    audit.acted(ALICE, "CreateTopics", ["x"])
    assert [it["event"] for it in lines(caplog)] == ["refused"] * 3 + ["act"]
    assert "suppressed" not in lines(caplog)[-1]
    clock.now_s += 1
    audit.refused(refusal("late"))
    assert lines(caplog)[-1]["suppressed"] == 7


def test_what_is_remembered_of_refusals_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REPEATED_MAX", 3)
    audit = Audit(lines_per_s=1_000)
    for number in range(10):
        audit.refused(refusal(f"t{number}"))
    assert len(audit._told) == 3


def test_no_act_is_hidden_behind_requests_that_are_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    audit = Audit(lines_per_s=3, now_s=Clock())
    for number in range(400):
        audit.acted(ALICE, "CreateAcls", ["x"], {"cluster_authorization_failed": 1}, is_done=False)
        audit.refused(refusal(f"t{number}"))
    for number in range(10):
        audit.acted(ALICE, "CreateAcls", [f"rule {number}"])
    told = [it for it in lines(caplog) if it["event"] == "act"]
    assert [it["resources"] for it in told] == [[f"rule {number}"] for number in range(10)]
    events = [it["event"] for it in lines(caplog)]
    assert (events.count("attempt"), events.count("refused")) == (3, 3)


def test_names_are_shortened_before_they_are_remembered(caplog: pytest.LogCaptureFixture) -> None:
    audit = Audit()
    long = "x" * 1_000_000
    audit.refused(refusal(long))
    audit.refused(refusal(long + "y"))
    audit.not_authenticated(Session(host="10.0.0.1"), long, by=long)
    audit.acted(ALICE._replace(client_id=long), "DeleteTopics", [long])
    assert len("".join(map(str, audit._told))) < 3_000
    assert sum(len(json.dumps(it)) for it in lines(caplog)) < 5_000


def test_an_act_tells_what_about_and_what_came_of_it(caplog: pytest.LogCaptureFixture) -> None:
    names = [f"s{number}" for number in range(25)]
    Audit().acted(
        ALICE, "DeleteTopics", [*names, "x" * 300], {"policy_violation": 2}, is_done=False
    )
    (line,) = lines(caplog)
    Audit().acted(ALICE, "DeleteTopics", names)
    assert lines(caplog)[-1]["resources"] == names, "of an act all are told"
    assert (line["principal"], line["client_id"], line["act"]) == (
        "User:alice",
        "app",
        "DeleteTopics",
    )
    assert line["outcome"] == "policy_violation 2"
    assert (line["resources"], line["resources_more"]) == (names[:20], 6)


def test_a_failed_login_tells_no_secret_and_not_twice(caplog: pytest.LogCaptureFixture) -> None:
    audit = Audit()
    for _ in range(3):
        audit.not_authenticated(Session(host="10.0.0.1"), "wrong password", by="SASL")
    (line,) = lines(caplog)
    assert (line["event"], line["reason"], line["by"]) == (
        "login refused",
        "wrong password",
        "SASL",
    )
