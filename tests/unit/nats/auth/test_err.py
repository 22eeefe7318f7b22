"""Subjects in the text of an error."""

import pytest

from streamlog.nats.auth import err


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        (b"a.b", b'"a.b"'),
        (b'a"b', b'"a\\"b"'),
        (b"a\\b", b'"a\\\\b"'),
        (b"a\r\n+OK", b'"a\\r\\n+OK"'),
        (b"\xff\x00", b'"\\xff\\x00"'),
        ("größe".encode(), '"größe"'.encode()),
    ],
)
def test_a_subject_ends_neither_the_line_nor_the_quotes(subject: bytes, text: bytes) -> None:
    assert err.publish_violation(subject) == b"'Permissions Violation for Publish to %b'" % text
    told = b"'Permissions Violation for Subscription to %b using queue %b'" % (text, b'"q"')
    assert err.subscription_violation(subject, b"q") == told
