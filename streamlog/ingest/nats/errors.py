"""What NATS complains about, or why it cannot be had: its kind, and what to do about it."""

import re
import ssl
from enum import StrEnum
from typing import Final, NamedTuple

import nats.errors


class NatsErrorKind(StrEnum):
    """Whose turn it is: each kind has another remedy."""

    UNREACHABLE = "unreachable"
    LOGIN = "login"
    TLS = "tls"
    LIMIT = "limit"
    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    SLOW_CONSUMER = "slow_consumer"
    OTHER = "other"


class NatsError(NamedTuple):
    """One line of it is ``text``, without a secret; ``remedy`` may be empty."""

    kind: NatsErrorKind
    text: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.text}: {self.remedy}" if self.remedy else self.text


class SlowConsumerCut(nats.errors.Error):
    """The server that we are connected to again had ended the connection without a word."""

    def __str__(self) -> str:
        return "NATS ended the connection without a word, as it does with slow consumers"


class Unusable(nats.errors.Error):
    """What the settings name cannot be used for this connection; the text says it all."""


class EndedEarly(nats.errors.Error):
    """The server has ended the connection before it had let us in."""

    def __init__(self, encrypted: bool) -> None:
        super().__init__()
        self.encrypted = encrypted

    def __str__(self) -> str:
        where = "TLS handshake" if self.encrypted else "greeting"
        return f"NATS ended the connection after the {where}, without a word"


class InTheClear(nats.errors.Error):
    """The server speaks no TLS, and we may not speak without."""

    def __str__(self) -> str:
        return "the server offers no TLS, and the settings ask for it"


_REMEDIES: Final = {
    NatsErrorKind.UNREACHABLE: "see whether nats-server runs there, and whether nats.servers is right",
    NatsErrorKind.LOGIN: "see that nats-server knows this login; a new file is read at the next attempt",
    NatsErrorKind.TLS: "see to nats.tls_* here and to the tls block of nats-server",
    NatsErrorKind.LIMIT: "raise that limit of nats-server or of the account",
    NatsErrorKind.PUBLISH: "grant it to streamlog's user (docs/nats.md); until then a publisher that waits for it"
    " hears nothing",
    NatsErrorKind.SUBSCRIBE: "grant it to streamlog's user (docs/nats.md); until then nothing of it is taken"
    " in, and a publisher there hears that no subscriber listens",
    NatsErrorKind.SLOW_CONSUMER: "give this node more processor time, or raise max_pending and"
    " write_deadline of nats-server; what was under way must be published again",
}

_SAID: Final = (
    (re.compile(r"permissions violation for publish", re.I), NatsErrorKind.PUBLISH),
    (re.compile(r"permissions violation for subscription", re.I), NatsErrorKind.SUBSCRIBE),
    (re.compile(r"slow consumer", re.I), NatsErrorKind.SLOW_CONSUMER),
    (re.compile(r"maximum .*exceeded", re.I), NatsErrorKind.LIMIT),
    (re.compile(r"secure connection|tls required", re.I), NatsErrorKind.TLS),
    (re.compile(r"authorization|authentication", re.I), NatsErrorKind.LOGIN),
)
"""By what the server's error line says; the first that fits."""

_CERT: Final = "nats.tls_cert and nats.tls_key"
_TLS: Final = (
    ("hostname mismatch", "name what it is for as nats.tls_server_name, or correct nats.servers"),
    ("ip address mismatch", "name what it is for as nats.tls_server_name, or correct nats.servers"),
    ("certificate has expired", "renew the certificate of nats-server"),
    ("not yet valid", "see to the clocks, and to the certificate of nats-server"),
    ("local issuer", "name the CA that signed the certificate of nats-server as nats.tls_ca"),
    ("self-signed", "name the CA that signed the certificate of nats-server as nats.tls_ca"),
    ("self signed", "name the CA that signed the certificate of nats-server as nats.tls_ca"),
    ("certificate required", f"nats-server wants to know us: set {_CERT}"),
    ("alert", f"nats-server does not accept {_CERT}: see who signed it, and until when"),
    (
        "wrong version number",
        "the server speaks no TLS there, or greets first: see to nats.tls_first",
    ),
)
"""By what OpenSSL says; the first that fits."""


def understood(error: Exception, login: object = "") -> NatsError:
    """``login``, as text: as whom we come now, for those who look why it was refused."""
    text = " ".join(str(error).split()).removeprefix("nats: ") or type(error).__name__
    if isinstance(error, Unusable):
        return NatsError(NatsErrorKind.TLS if "nats.tls" in text else NatsErrorKind.LOGIN, text, "")
    if isinstance(error, ssl.SSLError | InTheClear | EndedEarly):
        return _early(error, text) if isinstance(error, EndedEarly) else _tls(error, text)
    if isinstance(error, TimeoutError):
        remedy = f"{_REMEDIES[NatsErrorKind.UNREACHABLE]}, or whether it wants nats.tls_first"
        return NatsError(NatsErrorKind.UNREACHABLE, "NATS does not answer in time", remedy)
    kind = _kind(error, text)
    if kind is NatsErrorKind.LOGIN and str(login):
        text = f"{text} ({login})"
    return NatsError(kind, text, _REMEDIES.get(kind, ""))


def _kind(error: Exception, text: str) -> NatsErrorKind:
    if isinstance(error, OSError):
        return NatsErrorKind.UNREACHABLE
    if isinstance(error, nats.errors.SlowConsumerError):
        return NatsErrorKind.SLOW_CONSUMER
    if isinstance(error, nats.errors.Error):
        return next((kind for said, kind in _SAID if said.search(text)), NatsErrorKind.OTHER)
    return NatsErrorKind.OTHER


def _early(error: EndedEarly, text: str) -> NatsError:
    if error.encrypted:
        return NatsError(NatsErrorKind.TLS, text, f"see whether nats-server accepts {_CERT}")
    return NatsError(
        NatsErrorKind.OTHER, text, "see what nats-server says of it, and whether it is one"
    )


def _tls(error: Exception, text: str) -> NatsError:
    reason = (getattr(error, "reason", None) or "").replace("_", " ").lower()
    told = f"{text.lower()} {reason}"
    remedy = next((remedy for said, remedy in _TLS if said in told), _REMEDIES[NatsErrorKind.TLS])
    if isinstance(error, InTheClear):
        remedy = "turn TLS on there, or take nats.tls_* and tls:// out of the settings"
    return NatsError(NatsErrorKind.TLS, text, remedy)
