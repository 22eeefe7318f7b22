"""nats-server's configuration as a node's settings."""

from typing import Any

import pytest

from tests.peers.nats_configuration import NotOfferedError, Translation, from_flags, parse

TEXT = """
# a comment
port: 4555  // another
max_payload = 2048
authorization {
  users = [ { user: 'a', pass: "b c",
    permissions: { publish: { allow: ["x.>", _INBOX.>], deny: [y] }, subscribe: "z" } } ]
}
tls { cert_file: "./c.pem", key_file: ./k.pem
  verify: true }
"""


def settings(text: str) -> dict[str, dict[str, Any]]:
    return Translation(parse(text)).node().settings


def test_maps_lists_words_and_comments_are_read() -> None:
    found = parse(TEXT)
    assert (found["port"], found["max_payload"]) == ("4555", "2048")
    (user,) = found["authorization"]["users"]
    assert (user["user"], user["pass"]) == ("a", "b c")
    assert user["permissions"]["publish"] == {"allow": ["x.>", "_INBOX.>"], "deny": ["y"]}
    assert found["tls"]["key_file"] == "./k.pem"


def test_addresses_keep_their_colons() -> None:
    assert parse('a: nats://127.0.0.1:4222, b: "127.0.0.1:-1"') == {
        "a": "nats://127.0.0.1:4222",
        "b": "127.0.0.1:-1",
    }


def test_keys_end_at_a_colon() -> None:
    assert parse("a:b\nc:nats://d:1, e:{f:g}") == {"a": "b", "c": "nats://d:1", "e": {"f": "g"}}


def test_keys_are_variables_of_the_maps_around_and_in_them() -> None:
    text = 'port: 1, a { B = { c: [x] }, d: [ { e: $B, f: "$B" } ], g: $NONE, h: $port }'
    assert parse(text) == {"a": {"d": [{"e": {"c": ["x"]}, "f": "$B"}], "g": "$NONE", "h": "1"}}


def test_users_permissions_tls_and_limits_are_translated() -> None:
    node = Translation(parse(TEXT)).node()
    listen = node.settings["nats_listen"]
    assert node.users == {"a": "b c"}
    assert listen["payload_bytes_max"] == 2048
    assert listen["permissions"]["a"] == {
        "publish": {"allow": ["x.>", "_INBOX.>"], "deny": ["y"]},
        "subscribe": {"allow": ["z"]},
    }
    assert node.settings["tls"]["client_auth"] == "required"


def test_first_route_is_the_voter() -> None:
    flags = ["-p", "4224", "--cluster_listen", "nats://127.0.0.1:6224"]
    found = Translation(from_flags([*flags, "--routes", "nats://127.0.0.1:6223"])).node().settings
    assert found["node"] == {"id": 6224}
    assert found["cluster"]["voters"] == ["6223@127.0.0.1:6223"]


def test_flags_hold_over_the_file(tmp_path: Any) -> None:
    file = tmp_path / "nats.conf"
    file.write_text("port: 1\nhost: x")
    assert from_flags(["-c", str(file), "-p", "2", "--user", "u", "--pass", "p"]) == {
        "port": "2",
        "host": "x",
        "authorization": {"user": "u", "pass": "p"},
    }


@pytest.mark.parametrize(
    "text",
    [
        "accounts { a { users: [] }, b { users: [] } }",
        "authorization { token: short }",
        "no_auth_user: a",
        "tls { cert_file: a, key_file: b, pinned_certs: [c] }",
        "tls { cert_file: a, key_file: b, handshake_first: 300ms }",
        'cluster { listen: "127.0.0.1:-1" }',
    ],
)
def test_what_a_node_has_not_is_refused(text: str) -> None:
    with pytest.raises(NotOfferedError):
        settings(text)
