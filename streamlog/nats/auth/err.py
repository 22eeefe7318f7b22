"""What the port says in ``-ERR``, in nats-server's words: clients compare them. Pure.

Each is what is between the apostrophes. After a violation of permissions the connection goes on.
"""

from typing import Final

# Of the protocol
UNKNOWN_OPERATION: Final = "Unknown Protocol Operation"
LINE_EXCEEDED: Final = "maximum control line exceeded"
PAYLOAD_EXCEEDED: Final = "Maximum Payload Violation"
INVALID_PUBLISH_SUBJECT: Final = "Invalid Publish Subject"
"""The connection goes on."""
INVALID_SUBJECT: Final = "Invalid Subject"
"""Of a subscription; the connection goes on."""
INVALID_PROTOCOL: Final = "invalid client protocol"
NO_RESPONDERS_NEEDS_HEADERS: Final = "no responders requires headers support"

# Of limits
CONNECTIONS_EXCEEDED: Final = "maximum connections exceeded"
ACCOUNT_CONNECTIONS_EXCEEDED: Final = "maximum account active connections exceeded"
SUBSCRIPTIONS_EXCEEDED: Final = "maximum subscriptions exceeded"
"""The connection goes on."""
STALE_CONNECTION: Final = "Stale Connection"

# Of logins
AUTHORIZATION_VIOLATION: Final = "Authorization Violation"
"""A login failed, or there was none."""
AUTHENTICATION_TIMEOUT: Final = "Authentication Timeout"
"""No CONNECT came in time."""
AUTHENTICATION_EXPIRED: Final = "User Authentication Expired"
AUTHENTICATION_REVOKED: Final = "User Authentication Revoked"
ACCOUNT_AUTHENTICATION_EXPIRED: Final = "Account Authentication Expired"

_ESCAPES: Final = {'"': '\\"', "\\": "\\\\"}


def publish_violation(subject: bytes) -> str:
    return f"Permissions Violation for Publish to {_quoted(subject)}"


def reply_violation(reply: bytes) -> str:
    return f"Permissions Violation for Publish with Reply of {_quoted(reply)}"


def subscription_violation(subject: bytes, queue: bytes | None = None) -> str:
    words = f"Permissions Violation for Subscription to {_quoted(subject)}"
    return words if queue is None else f"{words} using queue {_quoted(queue)}"


def _quoted(text: bytes) -> str:
    """As Go's ``%q``: whatever a client calls a subject, it ends neither the line nor the quotes."""
    decoded = text.decode(errors="surrogateescape")
    return f'"{"".join(map(_escaped, decoded))}"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    if "\udc80" <= char <= "\udcff":  # a byte that is not UTF-8
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode()
