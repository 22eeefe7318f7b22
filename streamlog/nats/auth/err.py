"""What a server says in ``-ERR`` about logins and permissions, in nats-server's words: clients compare
them. Pure.

Each is what stands after ``-ERR`` and a space, with its apostrophes. After one of the constants the
connection is closed; after a violation of permissions it stays.
"""

from typing import Final

AUTHORIZATION_VIOLATION: Final = b"'Authorization Violation'"
"""A login failed, or there was none."""
AUTHENTICATION_TIMEOUT: Final = b"'Authentication Timeout'"
"""No CONNECT came in time."""
AUTHENTICATION_EXPIRED: Final = b"'User Authentication Expired'"
AUTHENTICATION_REVOKED: Final = b"'User Authentication Revoked'"
ACCOUNT_AUTHENTICATION_EXPIRED: Final = b"'Account Authentication Expired'"
ACCOUNT_CONNECTIONS_EXCEEDED: Final = b"'maximum account active connections exceeded'"
SUBSCRIPTIONS_EXCEEDED: Final = b"'maximum subscriptions exceeded'"
PAYLOAD_EXCEEDED: Final = b"'Maximum Payload Violation'"

_ESCAPES: Final = {'"': '\\"', "\\": "\\\\"}


def publish_violation(subject: bytes) -> bytes:
    return b"'Permissions Violation for Publish to %b'" % _quoted(subject)


def reply_violation(reply: bytes) -> bytes:
    return b"'Permissions Violation for Publish with Reply of %b'" % _quoted(reply)


def subscription_violation(subject: bytes, queue: bytes | None = None) -> bytes:
    if queue is None:
        return b"'Permissions Violation for Subscription to %b'" % _quoted(subject)
    names = _quoted(subject), _quoted(queue)
    return b"'Permissions Violation for Subscription to %b using queue %b'" % names


def _quoted(text: bytes) -> bytes:
    """As Go's ``%q``: whatever a client calls a subject, it ends neither the line nor the quotes."""
    decoded = text.decode(errors="surrogateescape")
    return f'"{"".join(map(_escaped, decoded))}"'.encode()


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    if "\udc80" <= char <= "\udcff":  # a byte that is not UTF-8
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode()
