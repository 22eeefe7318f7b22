import pytest

from streamlog.authn.bearer import encode_message, read_message
from streamlog.errors import AuthenticationFailed

TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.AAAA_-"


def test_a_message_says_the_token() -> None:
    assert read_message(encode_message(TOKEN)) == TOKEN


def test_extensions_are_passed_over() -> None:
    message = b"n,,\x01auth=Bearer %b\x01traceId=123\x01\x01" % TOKEN.encode()
    assert read_message(message) == TOKEN
    message = b"n,,\x01host=x\x01port=9092\x01auth=bearer  %b\x01\x01" % TOKEN.encode()
    assert read_message(message) == TOKEN


def test_nobody_acts_as_another_user() -> None:
    with pytest.raises(AuthenticationFailed, match="another user"):
        read_message(b"n,a=admin,\x01auth=Bearer x\x01\x01")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer x\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
        b"p=x,,\x01auth=Bearer a\x01\x01",
        b"n,,\x01auth=Bearer a\x01\x01trailing",
        b"n,,\x01auth=Bearer " + b"a" * 40_000 + b"\x01\x01",
    ],
)
def test_what_is_no_message_is_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed, match="malformed"):
        read_message(message)
