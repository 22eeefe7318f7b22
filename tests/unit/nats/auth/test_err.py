"""Subjects in the text of an error."""

import pytest

from streamlog.nats.auth import err


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        (b"a.b", '"a.b"'),
        (b'a"b', '"a\\"b"'),
        (b"a\\b", '"a\\\\b"'),
        (b"a\r\n+OK", '"a\\r\\n+OK"'),
        (b"\xff\x00", '"\\xff\\x00"'),
        ("größe".encode(), '"größe"'),
    ],
)
def test_a_subject_ends_neither_the_line_nor_the_quotes(subject: bytes, text: str) -> None:
    assert err.publish_violation(subject) == f"Permissions Violation for Publish to {text}"
    words = f"Permissions Violation for Publish with Reply of {text}"
    assert err.reply_violation(subject) == words
    words = f'Permissions Violation for Subscription to {text} using queue "q"'
    assert err.subscription_violation(subject, b"q") == words
