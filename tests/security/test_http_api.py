"""The JSON API of a guarded node: whose rights a request has, and what it tells those without."""

import re

import pytest

from tests.guarded_node import TOKEN, GuardedNode
from tests.http_api import Answer, ask


def by(node: GuardedNode, user: str, method: str, path: str, content: object = None) -> Answer:
    return ask(node, method, path, content, login=f"{user}:{user}-secret")


def anonymous_of(answer: Answer, name: str) -> tuple[int, str]:
    return answer.status, str(answer.content).replace(name, "NAME")


def test_who_did_not_log_in_is_not_answered(guarded: GuardedNode) -> None:
    for path in ("/streams", "/openapi.json", "/nothing"):
        refused = ask(guarded, "GET", path)
        assert (refused.status, refused.code) == (401, "AuthenticationFailed")
    refused = ask(guarded, "GET", "/streams", login="admin:wrong")
    assert (refused.status, refused.code) == (401, "AuthenticationFailed")


def test_a_user_needs_no_right_to_the_cluster_to_read_its_streams(guarded: GuardedNode) -> None:
    listed = by(guarded, "reader", "GET", "/streams")
    assert [it["config"]["name"] for it in listed.content["streams"]] == ["orders"]
    assert listed.content["total"] == 1
    assert by(guarded, "reader", "GET", "/streams/orders").status == 200
    assert by(guarded, "reader", "GET", "/streams/orders/message?offset=0").status == 200
    assert by(guarded, "reader", "GET", "/cluster").code == "ClusterForbidden"
    assert by(guarded, "reader", "GET", "/nodes").code == "ClusterForbidden"
    assert by(guarded, "reader", "GET", "/findings").code == "ClusterForbidden"
    assert by(guarded, "reader", "GET", "/events").status == 404
    assert by(guarded, "admin", "GET", "/events").status == 200
    assert by(guarded, "nobody", "GET", "/streams").content["streams"] == []


@pytest.mark.parametrize(
    ("method", "path", "content"),
    [
        ("GET", "/streams/NAME", None),
        ("GET", "/streams/NAME/message?offset=0", None),
        ("GET", "/streams/NAME/messages", None),
        ("GET", "/streams/NAME/messages?partition=7", None),
        ("DELETE", "/streams/NAME/message?offset=0", None),
        ("DELETE", "/streams/NAME", None),
        ("POST", "/streams/NAME/purge", {}),
        ("PUT", "/streams/NAME", {"config": {"name": "NAME", "partitions": 1}}),
        ("PATCH", "/streams/NAME", {"changes": [{"setting": "retention_ms", "text": "1000"}]}),
        ("PATCH", "/streams/NAME", {"changes": [{"setting": "partitions", "text": "9"}]}),
        ("POST", "/streams/NAME/move", {"partition": 0, "replicas": [1]}),
        ("POST", "/streams/NAME/elect", {"partition": 0}),
        ("POST", "/streams/NAME/replace-node", {"node": 1}),
        ("POST", "/streams", {"config": {"name": "NAME"}}),
        ("GET", "/streams?subject=NAME", None),
    ],
)
@pytest.mark.parametrize("user", ["reader", "nobody"])
def test_what_may_not_be_seen_is_answered_as_what_is_not_there(
    guarded: GuardedNode, user: str, method: str, path: str, content: object
) -> None:
    def answer(name: str) -> tuple[int, str]:
        body = eval(repr(content).replace("NAME", name))
        return anonymous_of(by(guarded, user, method, path.replace("NAME", name), body), name)

    hidden = answer("secret")
    assert hidden == answer("missed")
    assert hidden[0] in ((200,) if "?subject" in path else (403, 404))


@pytest.mark.parametrize(
    ("method", "path", "content"),
    [
        ("GET", "/groups/NAME", None),
        ("DELETE", "/groups/NAME", None),
        ("POST", "/groups/NAME/offsets/delete", {"offsets": [{"stream": "orders"}]}),
        ("POST", "/groups/NAME/reset", {"to_latest": True}),
        ("POST", "/groups/NAME/reset", {"to_latest": True, "streams": ["orders"]}),
    ],
)
def test_a_group_that_may_not_be_seen_is_answered_as_one_that_is_not_there(
    guarded: GuardedNode, method: str, path: str, content: object
) -> None:
    set_offsets(guarded, "hidden-group", "orders")
    for user in ("reader", "nobody"):
        hidden, missed = (
            anonymous_of(by(guarded, user, method, path.replace("NAME", name), content), name)
            for name in ("hidden-group", "missed-group")
        )
        assert hidden == missed and hidden[0] == 403


def test_a_group_is_told_without_streams_that_may_not_be_seen(guarded: GuardedNode) -> None:
    set_offsets(guarded, "reader-1", "orders", "secret")
    set_offsets(guarded, "hidden-group", "orders")
    found = by(guarded, "reader", "GET", "/groups/reader-1").content
    assert [it["stream"] for it in found["partitions"]] == ["orders"]
    listed = by(guarded, "reader", "GET", "/groups").content
    names = [it["group"] for it in listed["groups"]]  # with those of other tests at this node
    assert [it for it in names if it in ("hidden-group", "reader-1")] == ["reader-1"]
    assert listed["total"] == len(names), "what is hidden is not counted either"
    assert by(guarded, "nobody", "GET", "/groups").content["total"] == 0

    def reset(name: str) -> tuple[int, str]:
        content = {"to_earliest": True, "streams": [name]}
        return anonymous_of(by(guarded, "reader", "POST", "/groups/reader-1/reset", content), name)

    assert reset("secret") == reset("missed") and reset("secret")[0] == 404

    def forgotten(name: str) -> tuple[int, str]:
        content = {"offsets": [{"stream": name, "partitions": [0]}]}
        path = "/groups/reader-1/offsets/delete"
        return anonymous_of(by(guarded, "remover", "POST", path, content), name)

    assert forgotten("secret") == forgotten("missed") and "StreamNotFound" in forgotten("missed")[1]
    assert by(guarded, "reader", "DELETE", "/groups/reader-1").code == "GroupForbidden"
    told = by(guarded, "reader", "POST", "/groups/reader-1/reset", {"to_earliest": True})
    assert [it["stream"] for it in told.content["partitions"]] == ["orders"]
    acts = [it for it in guarded.audited() if it.get("act") == "groups.reset"]
    assert acts[-1]["resources"][0] == "reader-1" and acts[-1]["principal"] == "User:reader"


def set_offsets(node: GuardedNode, group: str, *streams: str) -> None:
    content = {"to_latest": True, "streams": streams}
    assert by(node, "admin", "POST", f"/groups/{group}/reset", content).status == 200


def test_the_owner_of_rights_uses_them_and_the_audit_log_says_so(guarded: GuardedNode) -> None:
    made = by(guarded, "admin", "POST", "/streams", {"config": {"name": "by-http"}})
    assert made.status == 200
    assert by(guarded, "reader", "DELETE", "/streams/by-http").status == 404
    assert by(guarded, "admin", "DELETE", "/streams/by-http").status == 204
    acts = [it for it in guarded.audited() if it.get("by") == "HTTP" and "act" in it]
    assert [(it["act"], it["principal"]) for it in acts if it["resources"] == ["by-http"]] == [
        ("streams.create", "User:admin"),
        ("streams.delete", "User:reader"),
        ("streams.delete", "User:admin"),
    ]


def test_a_token_has_the_rights_of_its_user_or_none(guarded: GuardedNode) -> None:
    def bearer(token: str, method: str, path: str, content: object = None) -> Answer:
        return ask(guarded, method, path, content, headers=(f"Authorization: Bearer {token}",))

    tokens = guarded.directory / "tokens"
    own = "the-token-of-reader"
    tokens.write_text(f"{TOKEN}\n{own} reader\nshort reader-of-something\n")
    try:
        assert bearer(TOKEN, "GET", "/streams").content["streams"] == []
        assert bearer(TOKEN, "GET", "/openapi.json").status == 200
        forbidden = bearer(TOKEN, "POST", "/streams", {"config": {"name": "s"}})
        assert (forbidden.status, forbidden.code) == (403, "WritesDisabled")
        assert bearer(own, "GET", "/streams").content["total"] == 1
        forbidden = bearer(own, "POST", "/streams", {"config": {"name": "s"}})
        assert (forbidden.status, forbidden.code) == (403, "TopicForbidden")
        for wrong in (f"{own} reader", "short", "reader", f"{own}x"):
            assert bearer(wrong, "GET", "/streams").status == 401
    finally:
        tokens.write_text(TOKEN + "\n")


def test_no_answer_has_a_password(guarded: GuardedNode) -> None:
    told = str(by(guarded, "admin", "GET", "/users").content)
    assert not re.search(r"salt|stored|key|secret", told)
