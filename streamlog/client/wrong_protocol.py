"""What answers where a node's socket API should be, by the first bytes of it. Pure."""

from typing import Final

_TLS_KINDS: Final = (0x15, 0x16)
"""An alert and a handshake (RFC 8446, section 5.1); the byte after it is TLS's major version."""
_TLS_MAJOR: Final = 3


def stranger(head: bytes | memoryview) -> str | None:
    """Of the four bytes that would be an answer's length; None: they are that, or nothing known."""
    start = bytes(head[:4])
    if start == b"INFO":
        return "a nats-server answers there; name the port of a node's socket API (kafka.port)"
    if start == b"HTTP":
        return "HTTP is spoken there; name the port of a node's socket API (kafka.port)"
    if start[0] in _TLS_KINDS and start[1] == _TLS_MAJOR:
        return "TLS is spoken there; have this side speak it, too (commands: --tls or --tls-ca)"
    return None


def why_closed(*, is_first: bool, by_tls: bool, has_login: bool) -> str:
    """What may be why a node closed the connection without an answer; with a semicolon before it.

    ``is_first``: it has not answered anything yet.
    """
    if is_first and not by_tls:
        return "; it may want TLS (commands: --tls or --tls-ca)"
    if not is_first and not has_login:
        return "; it may want a login (commands: --user and --password-file)"
    return ""
