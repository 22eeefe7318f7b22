"""A node's certificates: what its listeners show, and the task that reads them again when their files have
changed, and at SIGHUP.

Certificates that are renewed under a running node are used from the next connection on.
"""

import asyncio
import contextlib
import logging
import os
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import aiofiles.os

from streamlog.config import ClientAuth, Settings
from streamlog.errors import ConfigError
from streamlog.metrics import NodeMetrics
from streamlog.tls.certificate import CERTIFICATE_ENDS, SOON, Certificate
from streamlog.tls.contexts import File, KeyPair, Trust, client_context, server_context
from streamlog.tls.watched_context import CERTIFICATES_NOT_RELOADED

logger = logging.getLogger(__name__)

KAFKA: Final = "kafka"
HTTP: Final = "http"
NATS: Final = "nats_listen"

Stamp = tuple[int, ...] | None
"""What tells one content of a file from another; None: there is no such file."""


class _Loaded(NamedTuple):
    """All of it at one time: what is read together fits together."""

    listeners: dict[str, ssl.SSLContext]
    outgoing: ssl.SSLContext | None
    shown: dict[str, Certificate]
    """By listener."""


class Certificates:
    """Loaded when made. Connections keep what they began with; the next ones have what is new."""

    def __init__(self, settings: Settings) -> None:
        """Raises ConfigError."""
        self._settings = settings
        self._plans = {
            listener: plan for listener, plan in _plans(settings).items() if plan is not None
        }
        self._seen = self._fingerprint()
        self._loaded = self._load()

    def kafka(self) -> ssl.SSLContext | None:
        """For those who come to the socket API; None: in the clear."""
        return self._loaded.listeners.get(KAFKA)

    def http(self) -> ssl.SSLContext | None:
        return self._loaded.listeners.get(HTTP)

    def nats(self) -> ssl.SSLContext | None:
        """For clients of the NATS port."""
        return self._loaded.listeners.get(NATS)

    def outgoing(self) -> ssl.SSLContext | None:
        """For other nodes, which have the same settings; None: in the clear."""
        return self._loaded.outgoing

    @property
    def are_shown(self) -> bool:
        """At some listener."""
        return bool(self._plans)

    @property
    def shown(self) -> dict[str, Certificate]:
        """The certificate of each listener that has one."""
        return self._loaded.shown

    async def have_changed(self) -> bool:
        """Whether some file is another one since it was read, or tried to be."""
        if not self._plans:
            return False
        stamps = [(path, await _stamp_later(path)) for path in self._paths()]
        return tuple(stamps) != self._seen

    def reload(self) -> None:
        """Raises ConfigError, and then keeps what there was; an expired one is of no use either."""
        seen = self._fingerprint()
        try:
            loaded = self._load()
            for listener, certificate in loaded.shown.items():
                if certificate.not_after <= datetime.now(UTC):
                    raise _expired(self._plans[listener].own.cert, certificate)
        finally:
            self._seen = seen
        self._loaded = loaded

    def _load(self) -> _Loaded:
        tls = self._settings.tls
        listeners = {
            listener: server_context(
                plan.own,
                plan.clients,
                plan.client_auth,
                min_version=tls.min_version,
                kernel=tls.ktls and listener == KAFKA,
            )
            for listener, plan in self._plans.items()
        }
        outgoing = None
        if (plan := self._plans.get(KAFKA)) is not None:
            ca = _file("tls.ca", tls.ca) or _file("tls.client_ca", tls.client_ca)
            trust = Trust(ca, _file("tls.crl", tls.crl))
            outgoing = client_context(plan.own, trust, min_version=tls.min_version)
        return _Loaded(
            listeners,
            outgoing,
            {listener: plan.own.certificate() for listener, plan in self._plans.items()},
        )

    def _fingerprint(self) -> tuple[tuple[Path, Stamp], ...]:
        return tuple((path, _stamp(path)) for path in self._paths())

    def _paths(self) -> list[Path]:
        tls = self._settings.tls
        paths = {file.path for plan in self._plans.values() for file in plan.files}
        if tls.ca is not None:
            paths.add(tls.ca)
        return sorted(paths)


class CertificateReload:
    """Looks at the files now and then, and when it is asked to (SIGHUP)."""

    def __init__(self, certificates: Certificates, metrics: NodeMetrics, check_ms: int) -> None:
        self._certificates = certificates
        self._metrics = metrics
        self._check_s = check_ms / 1000 or None
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Load what is there now, changed or not."""
        self._asked.set()

    async def run(self) -> None:
        self._show()
        problem: ConfigError | None = None
        while True:
            asked = await self._asked_in_time()
            if asked or await self._certificates.have_changed():
                problem = await self._reload()
                if problem is None or not asked:
                    continue  # a key comes a moment after its certificate: what stays is told
            if problem is not None:
                self._complain(problem)
                problem = None

    async def _asked_in_time(self) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._check_s):
                await self._asked.wait()
            self._asked.clear()
            return True
        return False

    async def _reload(self) -> ConfigError | None:
        """What is wrong with the new ones."""
        try:
            # In a thread, and not by aiofiles: OpenSSL reads the files itself.
            await asyncio.to_thread(self._certificates.reload)
        except ConfigError as problem:
            return problem
        self._metrics.tls_reloads.labels("loaded").inc()
        self._show()
        return None

    def _complain(self, problem: ConfigError) -> None:
        self._metrics.tls_reloads.labels("failed").inc()
        extra = {"key": problem.key, "problem": problem.problem, "remedy": problem.remedy}
        logger.error(CERTIFICATES_NOT_RELOADED, extra=extra)

    def _show(self) -> None:
        now = datetime.now(UTC)
        for listener, certificate in self._certificates.shown.items():
            until = certificate.not_after
            self._metrics.tls_certificate_not_after.labels(listener).set(until.timestamp())
            extra = {
                "listener": listener,
                "subject": certificate.subject,
                "not_after": f"{until:%F %T} UTC",
            }
            if until <= now:
                logger.error(
                    CERTIFICATE_ENDS.logged_as("certificate has expired: renew it"), extra=extra
                )
            elif until - now < SOON:
                logger.warning(
                    CERTIFICATE_ENDS.logged_as("certificate expires soon: renew it"), extra=extra
                )
            else:
                logger.info("certificate loaded", extra=extra)


def probing_context(settings: Settings) -> ssl.SSLContext | None:
    """To ask the node's own HTTP from its own machine; None: in the clear. Raises ConfigError.

    Who answers is not checked: certificates are seldom for 127.0.0.1, and nothing secret is said.
    """
    plan = _plans(settings)[HTTP]
    if plan is None:
        return None
    tls = settings.tls
    own = _pair("tls.", tls.cert, tls.key, tls.key_password_file) or plan.own
    shown = None if plan.client_auth == "none" else own
    context = client_context(shown, Trust(None), min_version=tls.min_version)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class _Plan(NamedTuple):
    """Of a listener."""

    own: KeyPair
    clients: Trust
    client_auth: ClientAuth

    @property
    def files(self) -> tuple[File, ...]:
        return self.own.files + self.clients.files


def _plans(settings: Settings) -> dict[str, _Plan | None]:
    """Raises ConfigError for what contradicts itself."""
    tls, http = settings.tls, settings.http
    clients = Trust(_file("tls.client_ca", tls.client_ca), _file("tls.crl", tls.crl))
    nodes_own = _pair("tls.", tls.cert, tls.key, tls.key_password_file)
    https_own = _pair("http.tls_", http.tls_cert, http.tls_key, None) or nodes_own
    auth = tls.client_auth if http.tls_client_auth is None else http.tls_client_auth
    if auth != "none" and tls.client_ca is None:
        problem = f"is {auth!r}, which needs tls.client_ca"
        raise ConfigError("http.tls_client_auth", problem, "name the CA of clients there")
    demanded: ClientAuth = tls.client_auth
    if demanded == "required" and settings.security.permissive:
        demanded = "optional"
    listeners = {
        KAFKA: (settings.kafka.tls, nodes_own, demanded, "tls.cert"),
        HTTP: (http.tls, https_own, auth, "tls.cert or http.tls_cert"),
    }
    if settings.nats_listen.port is not None:
        listeners[NATS] = (settings.nats_listen.tls, nodes_own, demanded, "tls.cert")
    plans: dict[str, _Plan | None] = {}
    for listener, (wanted, own, client_auth, missing) in listeners.items():
        if wanted and own is None:
            problem = f"is true, and there is no {missing}"
            raise ConfigError(f"{listener}.tls", problem, "name a certificate and its key")
        plans[listener] = None
        if own is not None and wanted is not False:
            plans[listener] = _Plan(own, clients, client_auth)
    if tls.client_auth != "none" and plans[KAFKA] is None:
        problem = f"is {tls.client_auth!r}, and the socket API has no TLS"
        raise ConfigError("tls.client_auth", problem, "set tls.cert and tls.key, or remove it")
    return plans


def _pair(
    prefix: str, cert: Path | None, key: Path | None, password: Path | None
) -> KeyPair | None:
    own, its_key = _file(f"{prefix}cert", cert), _file(f"{prefix}key", key)
    if own is None or its_key is None:
        return None
    return KeyPair(own, its_key, _file(f"{prefix}key_password_file", password))


def _file(setting: str, path: Path | None) -> File | None:
    return None if path is None else File(setting, path)


def _stamp(path: Path) -> Stamp:
    try:
        return _identity(path.stat())
    except OSError:
        return None


async def _stamp_later(path: Path) -> Stamp:
    """``_stamp`` on an event loop."""
    try:
        return _identity(await aiofiles.os.stat(path))
    except OSError:
        return None


def _identity(found: os.stat_result) -> tuple[int, ...]:
    return found.st_ino, found.st_size, found.st_mtime_ns


def _expired(file: File, certificate: Certificate) -> ConfigError:
    problem = f"{file.path} has expired at {certificate.not_after:%Y-%m-%d %H:%M:%S} UTC"
    return ConfigError(file.setting, problem, "have it renewed")
