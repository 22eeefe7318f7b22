"""Why TLS failed, in words for the operator."""

import ssl
from typing import Final

from streamlog.condition import Condition

_OF_THEIRS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it showed no certificate, and one is required here",
    "HTTP_REQUEST": "it speaks HTTP in the clear, and TLS is spoken here",
    "WRONG_VERSION_NUMBER": "it does not speak TLS, or none that is spoken here",
    "RECORD_LAYER_FAILURE": "it does not speak TLS, or none that is spoken here",
    "PACKET_LENGTH_TOO_LONG": "it does not speak TLS",
    "UNKNOWN_PROTOCOL": "it does not speak TLS",
    "BAD_RECORD_TYPE": "it does not speak TLS",
    "UNSUPPORTED_PROTOCOL": "it speaks only versions of TLS that are too old",
    "NO_SHARED_CIPHER": "it speaks only ciphers that are too weak",
    "UNEXPECTED_EOF_WHILE_READING": "it closed the connection during the handshake",
}
"""By OpenSSL's reason, what is wrong with the other side."""

_OF_OURS: Final = {
    "TLSV1_ALERT_UNKNOWN_CA": "it does not know the CA of our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it says that our certificate has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "it says that our certificate is revoked",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept our certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept our certificate",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "our certificate is not for this use",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it wants a certificate, and we showed none",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it speaks none of our versions of TLS",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "it refuses: it wants a certificate, or other ciphers",
    "TLSV1_ALERT_DECRYPT_ERROR": "it could not check what we have signed",
    "TLSV1_ALERT_INTERNAL_ERROR": "it failed",
}
"""By OpenSSL's reason, what the other side has told is wrong with us."""


_OUR_CERTIFICATE: Final = frozenset(
    said for said in _OF_OURS.values() if "our certificate" in said or "we have signed" in said
)
OUR_CERTIFICATE_REFUSED: Final = Condition(
    "SL-0612",
    "a client does not accept the certificate of this node",
    "`streamlog doctor` there looks at the node's certificates; if they are well, see which CA the "
    "client trusts and what time its clock shows",
    meaning="The TLS handshake ended because of the certificate that the node shows.",
)


def is_of_our_certificate(said: str) -> bool:
    """Whether ``trouble`` has told that the other side does not accept what we show."""
    return said in _OUR_CERTIFICATE


def trouble(error: OSError) -> str:
    """One line without an end, about "it", the other side."""
    if isinstance(error, ssl.SSLCertVerificationError):
        said = (error.verify_message or "it cannot be checked").rstrip(".")
        return f"its certificate is not accepted: {said[:1].lower() + said[1:]}"
    reason = getattr(error, "reason", None) or ""
    if reason in _OF_THEIRS:
        return _OF_THEIRS[reason]
    if reason in _OF_OURS:
        return _OF_OURS[reason]
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionError):
        return "it closed the connection during the handshake"
    return reason.lower().replace("_", " ") or error.strerror or type(error).__name__
