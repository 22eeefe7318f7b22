"""How long certificates last: those that are shown, those of who vouches for others, all they need.

Where one has expired, every peer that checks it refuses: a CA's takes the whole cluster with it.
"""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamlog.condition import CRITICAL, WARNING, Condition
from streamlog.errors import ConfigError
from streamlog.findings import Finding, wrong_setting
from streamlog.tls.certificate import CERTIFICATE_ENDS

if TYPE_CHECKING:
    from streamlog.config import Settings
    from streamlog.tls.certificate import Certificate

AREA: Final = "certificates"

REVOCATIONS_OLD: Final = Condition(
    "SL-0602",
    "tls.crl is out of date",
    "fetch the CA's newest list into {path}",
    meaning="A list of revoked certificates holds until a time. After it, clients that show a "
    "certificate of that CA are refused.",
    severity=CRITICAL,
)


def examine(settings: "Settings", now: datetime) -> Iterator[Finding]:
    """Of every file that the settings name: of a chain what expires first, of CAs what lasts."""
    from streamlog.tls.contexts import File, certificates

    for key, path in _files(settings):
        choose = max if key.endswith("ca") else min  # an old CA stays beside its successor
        try:
            found = choose(certificates(File(key, path)), key=lambda it: it.not_after)
        except ConfigError as error:
            yield wrong_setting(error, AREA)
        else:
            yield _judged(key, path, found, now)
    if settings.tls.crl is not None:
        yield _revocations(settings.tls.crl, now)


def _files(it: "Settings") -> Iterator[tuple[str, Path]]:
    seen = set()
    for key, path in (
        ("tls.cert", it.tls.cert),
        ("tls.client_ca", it.tls.client_ca),
        ("tls.ca", it.tls.ca),
        ("http.tls_cert", it.http.tls_cert),
        ("nats.tls_cert", it.nats.tls_cert),
        ("nats.tls_ca", it.nats.tls_ca),
    ):
        if path is not None and path not in seen:
            seen.add(path)
            yield key, path


def _judged(key: str, path: Path, certificate: "Certificate", now: datetime) -> Finding:
    from streamlog.tls.certificate import SOON, URGENT

    left = certificate.not_after - now
    until = f"{certificate.not_after:%Y-%m-%d %H:%M} UTC"
    said = f"{key}: {certificate.subject or path} "
    measured = {"left_seconds": left.total_seconds()}
    remedy = f"renew {path}: a running node takes the new one by itself"
    is_over = left.total_seconds() <= 0
    said += f"has expired at {until}" if is_over else f"expires at {until}, in {left.days} days"
    if left < SOON:
        return Finding.of(
            CERTIFICATE_ENDS,
            AREA,
            said,
            remedy,
            severity=CRITICAL if left < URGENT else WARNING,
            measured=measured,
        )
    return Finding(AREA, "ok", said, "", measured)


def _revocations(path: Path, now: datetime) -> Finding:
    """Lists are renewed every few days, so that it is no news that one ends soon."""
    from streamlog.tls.contexts import File, next_updates

    try:
        known = [it for it in next_updates(File("tls.crl", path)) if it is not None]
    except ConfigError as error:
        return wrong_setting(error, AREA)
    if not known:
        return Finding(AREA, "ok", "tls.crl does not say how long it holds")
    until = f"until {min(known):%Y-%m-%d %H:%M} UTC"
    if min(known) <= now:
        said = f"tls.crl held {until}: a client that shows a certificate of that CA is refused"
        return Finding.of(REVOCATIONS_OLD, AREA, said, path=path)
    return Finding(AREA, "ok", f"tls.crl holds {until}")
