"""A node's authenticator of its NATS port, as the settings make it, with users and rules of a cluster."""

from collections.abc import Mapping
from typing import Any

from streamlog.acl.rules import RuleBook
from streamlog.app.security import NodeSecurity, build_authenticator
from streamlog.authn.scram import Scram, credential_of, salted_password
from streamlog.config import ClientAuth, NatsListenAuthSection, Settings
from streamlog.errors import AuthenticationFailed
from streamlog.metadata.image.credential import Credentials, StoredCredential
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metrics import NodeMetrics
from streamlog.nats.auth.port_authenticator import AdmittedClient, PortAuthenticator
from streamlog.tls.certificates import Certificates

SALT = b"salt" * 6
ITERATIONS = 4_096
NONCE = "a-nonce-of-a-connection"


class PortWorld:
    """``sections``: of the settings, beside those of the port."""

    def __init__(
        self,
        port: Mapping[str, Any] | None = None,
        *,
        client_auth: ClientAuth = "none",
        **sections: dict[str, Any],
    ) -> None:
        sections["sasl"] = {"failure_delay_ms": 0, **sections.get("sasl", {})}
        self.settings = Settings(node={"data_dir": "data"}, **sections)  # type: ignore[arg-type]
        self.rules = RuleBook()
        self.image = MetadataImage("cluster")
        self.metrics = NodeMetrics()
        self.authenticator = build_authenticator(
            self.settings, lambda: self.image, Certificates(self.settings)
        )
        self.security = NodeSecurity(
            self.settings, lambda: self.rules, self.authenticator, self.metrics
        )
        section = NatsListenAuthSection.model_validate(port or {})
        self.port: PortAuthenticator = self.security.port_authenticator(section, client_auth)

    def add_user(self, name: str, password: str) -> None:
        salted = salted_password(Scram.SHA_256, password, SALT, ITERATIONS)
        made = StoredCredential.of(credential_of(Scram.SHA_256, salted, SALT, ITERATIONS))
        credentials: Credentials = {Scram.SHA_256.value: made}
        self._set_users({**self.image.users, name: credentials})

    def remove_user(self, name: str) -> None:
        self._set_users({key: it for key, it in self.image.users.items() if key != name})

    def _set_users(self, users: Mapping[str, Credentials]) -> None:
        self.image = MetadataImage("cluster", users=self.image.users.__class__(users))

    async def log_in(
        self,
        connect: Mapping[str, Any],
        *,
        nonce: str = NONCE,
        host: str = "127.0.0.1",
        tls_subject: str | None = None,
        is_encrypted: bool = False,
    ) -> AdmittedClient:
        return await self.port.log_in(
            connect, nonce=nonce, host=host, tls_subject=tls_subject, is_encrypted=is_encrypted
        )

    async def refusal(self, connect: Mapping[str, Any], **more: Any) -> str:
        """Why it is refused; empty: it is let in."""
        try:
            await self.log_in(connect, **more)
        except AuthenticationFailed as error:
            return str(error)
        return ""

    def refused(self) -> float:
        """How many logins were."""
        name, labels = "streamlog_logins_refused_total", {"by": "NATS port"}
        return self.metrics.registry.get_sample_value(name, labels) or 0.0
