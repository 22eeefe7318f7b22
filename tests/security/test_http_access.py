"""The HTTP listener: health for every client, the rest for clients with a token, or a password and a right."""

import base64
import http.client
import time
import urllib.error
import urllib.request

import pytest

from tests.guarded_node import FAILURE_DELAY_MS, TOKEN, GuardedNode


def get(node: GuardedNode, path: str, authorization: str | None = None) -> tuple[int, str]:
    address = f"http://127.0.0.1:{node.http_port}{path}"
    headers = {} if authorization is None else {"Authorization": authorization}
    try:
        request = urllib.request.Request(address, headers=headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_health_is_for_everybody(guarded: GuardedNode) -> None:
    assert get(guarded, "/healthz")[0] == 200
    assert get(guarded, "/readyz")[0] == 200


@pytest.mark.parametrize(
    "authorization",
    [
        None, "Bearer guessed", "Bearer ", "Bearer", f"bearer{TOKEN}", "Basic !", "Basic YQ==",
        "Basic \xe9", "Bearer \xff", "Bearer \xe9",
        basic("admin", "wrong"), basic("stranger", "x"),
        basic("node", "node-secret-of-this-cluster"), f"Digest {TOKEN}",
    ],
)  # fmt: skip
def test_who_is_not_known_reads_nothing(guarded: GuardedNode, authorization: str | None) -> None:
    for path in ("/metrics", "/", "/no-such-page"):
        status, text = get(guarded, path, authorization)
        assert status == 401
        assert "streamlog_" not in text
    assert any(it.get("by") == "HTTP" for it in guarded.audited())


def test_a_wrong_password_is_told_so_late(guarded: GuardedNode) -> None:
    for user in ("admin", "stranger"):
        began_s = time.monotonic()
        assert get(guarded, "/metrics", basic(user, "wrong"))[0] == 401
        assert time.monotonic() - began_s >= FAILURE_DELAY_MS / 1000


def test_a_token_and_a_password_let_in(guarded: GuardedNode) -> None:
    assert get(guarded, "/metrics", f"Bearer {TOKEN}")[0] == 200
    assert get(guarded, "/metrics", basic("admin", "admin-secret"))[0] == 200
    assert get(guarded, "/metrics", basic("reader", "reader-secret"))[0] == 403


def test_a_tail_ends_when_the_right_to_read_is_taken_away(guarded: GuardedNode) -> None:
    guarded.admin("user", "add", "watcher", "--new-password-file",
                  str(guarded.password_file("watcher")))  # fmt: skip
    guarded.admin("acl", "add", "-p", "User:watcher", "-o", "describe", "--cluster")
    right = ("-p", "User:watcher", "-o", "read", "-t", "orders")
    guarded.admin("acl", "add", *right)
    authorization = {"Authorization": basic("watcher", "watcher-secret")}
    connection = http.client.HTTPConnection("127.0.0.1", guarded.http_port, timeout=10)
    try:
        connection.request("GET", "/api/tail?stream=orders", headers=authorization)
        answer = connection.getresponse()
        assert answer.status == 200
        while not answer.readline().startswith(b"event: records"):
            pass
        guarded.admin("acl", "rm", *right, "--yes")
        assert b"event: records" not in answer.read(), "it ends"
    finally:
        connection.close()
    assert get(guarded, "/api/tail?stream=orders", authorization["Authorization"])[0] == 403
