"""Who is let in, and what they may do: the rules, the audit log, the passwords of HTTP; who this
node is to others, and how it finds out who they are.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path

from streamlog.acl.rules import RuleBook
from streamlog.app.logs import JsonLines
from streamlog.authn import scram
from streamlog.authn.principal import Principal
from streamlog.authn.principal_mapping import PrincipalMapping
from streamlog.authn.session import Session
from streamlog.authz.audit import Audit
from streamlog.authz.audit import logger as audit_logger
from streamlog.authz.service import AuthorizationService
from streamlog.client.security import ClientLogin, Security, secret_in
from streamlog.config import ClientAuth, NatsListenAuthSection, Settings
from streamlog.errors import AuthenticationFailed, ConfigError
from streamlog.http.access import HttpAccess, LogIn
from streamlog.jetstream.auth.identity import RequestIdentities
from streamlog.kafka.auth.authenticator import Authenticator
from streamlog.kafka.auth.login_rate_limit import LoginRateLimit
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metrics import NodeMetrics
from streamlog.nats.auth.port_authenticator import (
    PasswordUsers,
    PortAuthenticator,
    PortRequirements,
    PortServices,
)
from streamlog.tls.certificates import KAFKA, Certificates


class PrivateFileHandler(WatchedFileHandler):
    """After the file was moved away, a new one is created, which only our account may read, too."""

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        opened = os.open(self.baseFilename, flags, 0o600)
        return os.fdopen(opened, "a", encoding=self.encoding)


class AuditFile:
    """Open from ``open`` to ``close``. After it was moved away, a new one is created (logrotate)."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._handler: logging.Handler | None = None

    def open(self) -> None:
        """Raises ConfigError."""
        if self._path is None:
            return
        try:
            handler = PrivateFileHandler(self._path, encoding="utf-8")
        except OSError as error:
            problem = f"{self._path} cannot be written ({error.strerror})"
            raise ConfigError(
                "authorization.audit_file", problem, "name a file in a folder of ours"
            ) from None
        handler.setFormatter(JsonLines())
        audit_logger.addHandler(handler)
        audit_logger.setLevel(logging.INFO)  # however little the node's own log tells
        self._handler = handler

    def close(self) -> None:
        if self._handler is not None:
            audit_logger.removeHandler(self._handler)
            self._handler.close()
            self._handler = None


class NodeSecurity:
    """Of one node; ``open`` before anybody is answered, ``close`` after the last."""

    def __init__(
        self,
        settings: Settings,
        rules: Callable[[], RuleBook],
        authenticator: Authenticator | None,
        metrics: NodeMetrics,
    ) -> None:
        """``rules``: of the metadata, as they are now. Raises ConfigError."""
        self._settings = settings
        self.audit = Audit(
            settings.authorization.audit_lines_per_s,
            count=lambda by: metrics.logins_refused.labels(by).inc(),
        )
        self.authorization = AuthorizationService(
            settings.authorization, rules, self.audit, enforced=settings.authentication_on
        )
        self.identity = RequestIdentities(self.authorization, settings.authorization)
        sasl = settings.sasl
        patience = (
            LoginRateLimit(sasl.failures_per_address_max)
            if authenticator is None
            else authenticator.patience
        )
        self._examine = partial(patience.examine_slowly, delay_ms=sasl.failure_delay_ms)
        self._authenticator = authenticator
        self.http = HttpAccess(
            self.authorization,
            token_file=settings.http.token_file,
            examine=self._examine,
            log_in=_log_in(authenticator) if settings.http.basic_auth else None,
        )
        self._file = AuditFile(settings.authorization.audit_file)

    def port_authenticator(
        self, section: NatsListenAuthSection, client_auth: ClientAuth
    ) -> PortAuthenticator:
        """Of the NATS listener, whose clients show certificates as ``client_auth`` says. Reads files.
        Raises ConfigError.
        """
        settings = self._settings
        for error in missing_port_users(section, settings):
            raise error
        users = None
        authenticator = self._authenticator
        if takes_passwords(section, settings) and authenticator is not None:
            users = PasswordUsers(_log_in(authenticator, "nats"), authenticator.of_plain)
        by_rules = PrincipalMapping(settings.sasl.principal_mapping_rules)
        services = PortServices(
            users=users,
            certified=(
                (lambda subject: (by_rules.principal(subject), False))
                if authenticator is None
                else authenticator.certified
            ),
            examine=self._examine,
            access_of=self.authorization.access_of,
            names=self.authorization.names,
            not_authenticated=partial(self.audit.not_authenticated, by="NATS port"),
            nkeys=settings.authorization.nkeys,
            wall_s=time.time,
            monotonic_s=time.monotonic,
        )
        requirements = PortRequirements(
            is_required=settings.authentication_known or client_auth == "required",
            is_permissive=settings.security.permissive,
            session_lifetime_s=settings.sasl.session_lifetime_ms / 1000,
        )
        return PortAuthenticator(section, requirements, services)

    async def open(self) -> None:
        """Raises ConfigError."""
        self._file.open()
        self.authorization.load()

    async def close(self) -> None:
        self._file.close()


def takes_passwords(section: NatsListenAuthSection, settings: Settings) -> bool:
    """Users of the cluster log in at the NATS port with their passwords."""
    return (
        bool(settings.sasl.mechanisms) if section.password_auth is None else section.password_auth
    )


def missing_port_users(section: NatsListenAuthSection, settings: Settings) -> Iterator[ConfigError]:
    if section.password_auth and not settings.authentication_known:
        yield _no_users("nats_listen.password_auth", "nats_listen.token_file")


def _log_in(authenticator: Authenticator | None, client_id: str = "http") -> LogIn:
    if authenticator is None:
        raise _no_users()

    async def log_in(user: str, password: str, host: str) -> Session:
        """As PLAIN over SASL: failures are slowed down, and counted by address."""
        delay_ms = authenticator.settings.failure_delay_ms
        async with authenticator.patience.examine_slowly(host, delay_ms):
            kind, known = authenticator.of_plain(user)
            is_right = await asyncio.get_running_loop().run_in_executor(
                authenticator.threads, scram.is_password, kind, password, known.credentials[0]
            )
            if not is_right or known.is_decoy:
                raise AuthenticationFailed(scram.WRONG)
        return Session(Principal.user(user), host, client_id)

    return log_in


def build_authenticator(
    settings: Settings, image: Callable[[], MetadataImage], certificates: Certificates
) -> Authenticator | None:
    """None where no proof of identity is configured. Reads files. Raises ConfigError."""
    for error in missing_logins(settings):
        raise error
    if not settings.authentication_known:
        return None
    return Authenticator.load(
        settings.sasl,
        image,
        lambda: _own_subject(certificates),
        is_demanded=settings.authentication_on,
    )


def missing_logins(settings: Settings) -> Iterator[ConfigError]:
    """Of nodes, and of users whose passwords are asked for."""
    if settings.http.basic_auth and not settings.authentication_known:
        yield _no_users()
    by_certificate = settings.tls.client_auth != "none"
    is_lone = len(settings.cluster.voters) <= 1
    if settings.authentication_known and not (is_lone or settings.sasl.node_user or by_certificate):
        problem = "is missing, and nodes show no certificates: none would let in another one"
        remedy = "name the user, with sasl.node_password_file, or set tls.client_auth"
        yield ConfigError("sasl.node_user", problem, remedy)


def _no_users(key: str = "http.basic_auth", instead: str = "http.token_file") -> ConfigError:
    problem = "there are no users without a login"
    return ConfigError(key, problem, f"set sasl.mechanisms, or {instead}")


def _own_subject(certificates: Certificates) -> str | None:
    """Of what the socket API shows, which is shown to other nodes as well."""
    own = certificates.shown.get(KAFKA)
    return own.subject if own is not None else None


def to_nodes(settings: Settings, certificates: Certificates) -> Security:
    """How this node goes to other nodes."""
    return Security(
        tls=certificates.outgoing,
        login=node_login(settings),
        permissive=settings.security.permissive,
    )


def node_login(settings: Settings) -> ClientLogin | None:
    """The login of this node at other nodes; None: its certificate, or no login."""
    sasl = settings.sasl
    if sasl.node_user is None or sasl.node_password_file is None:
        return None
    secret = secret_in(sasl.node_password_file, "sasl.node_password_file")
    return ClientLogin(sasl.node_mechanism, sasl.node_user, secret)
