"""Who is let in, and what they may do: the rules, the audit log, the passwords of HTTP."""

import asyncio
from collections.abc import Callable
from functools import partial

from streamlog.acl.rulebook import RuleBook
from streamlog.app.audit_file import AuditFile
from streamlog.authn import scram
from streamlog.authn.principal import Principal
from streamlog.authn.session import Session
from streamlog.authz.audit import Audit
from streamlog.authz.authority import Authority
from streamlog.config import Settings
from streamlog.errors import AuthenticationFailed, ConfigError
from streamlog.http.access import HttpAccess, LogIn
from streamlog.jetstream.auth.identity import RequestIdentities, check_node_secrets, node_secrets_of
from streamlog.kafka.auth.authenticator import Authenticator
from streamlog.kafka.auth.login_rate_limit import LoginRateLimit
from streamlog.metrics import NodeMetrics


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
        self.authority = Authority(
            settings.authorization, rules, self.audit, enforced=settings.authentication_on
        )
        self.identity = RequestIdentities(
            self.authority, settings.authorization, node_secrets_of(settings)
        )
        sasl = settings.sasl
        patience = (
            LoginRateLimit(sasl.failures_per_address_max)
            if authenticator is None
            else authenticator.patience
        )
        self.http = HttpAccess(
            self.authority,
            token_file=settings.http.token_file,
            examine=partial(patience.examine_slowly, delay_ms=sasl.failure_delay_ms),
            log_in=_log_in(authenticator) if settings.http.basic_auth else None,
        )
        self._file = AuditFile(settings.authorization.audit_file)

    async def open(self) -> None:
        """Raises ConfigError."""
        check_node_secrets(self._settings)
        self._file.open()
        self.authority.load()

    async def close(self) -> None:
        self._file.close()


def _log_in(authenticator: Authenticator | None) -> LogIn:
    if authenticator is None:
        problem = "there are no users where nobody logs in"
        raise ConfigError("http.basic_auth", problem, "set sasl.mechanisms, or http.token_file")

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
        return Session(Principal.user(user), host, "http")

    return log_in
