import pytest

from streamlog.authn.plain import encode_message, read_message
from streamlog.errors import AuthenticationFailed


def test_a_message_says_user_and_password() -> None:
    assert read_message(encode_message("zoë", "pass word")) == ("zoë", "pass word")


def test_the_user_may_be_named_twice() -> None:
    assert read_message(b"alice\0alice\0secret") == ("alice", "secret")


def test_nobody_acts_as_another_user() -> None:
    with pytest.raises(AuthenticationFailed, match="another user"):
        read_message(b"admin\0alice\0secret")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"alice",
        b"\0alice",
        b"\0\0secret",
        b"\0alice\0",
        b"\0a\0b\0c",
        b"\0\xff\0b",
        b"\0alice\0" + b"x" * 300,
    ],
)
def test_half_a_message_is_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed, match="malformed"):
        read_message(message)


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(read_message(b"\0alice\0secret"))
