"""Whom this node believes, and by which proof: of all its connections together."""

import secrets
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamlog.authn.decoys import Decoys, Kind
from streamlog.authn.principal import ANONYMOUS, Principal
from streamlog.authn.principal_mapping import PrincipalMapping
from streamlog.authn.scram import (
    Credential,
    KnownCredential,
    Scram,
    ServerExchange,
    credential_of,
    salted_password,
)
from streamlog.client.security import lines_of
from streamlog.config import SaslSection
from streamlog.config.watched_file import WatchedFile
from streamlog.errors import ConfigError
from streamlog.kafka.auth.login_rate_limit import LoginRateLimit
from streamlog.metadata.image.credential import Credentials
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.nodes.bootstrap_users import read_bootstrap_users

if TYPE_CHECKING:
    from streamlog.authn.token import Verified
    from streamlog.kafka.auth.token_keys import TokenKeys

NONCE_BYTES: Final = 24
SECRET_BYTES: Final = 32
WORKERS: Final = 2
"""Threads that hash passwords of PLAIN: milliseconds each, for which no other client is to wait."""
NODE_PASSWORDS_MAX: Final = 4
PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
PASSWORDS_OF: Final = (Scram.SHA_256, Scram.SHA_512)
"""Whose credentials passwords of PLAIN are held against: the first that a user has."""


class Authenticator:
    """``load`` at the start, ``close`` at the end."""

    def __init__(
        self,
        settings: SaslSection,
        image: Callable[[], MetadataImage],
        *,
        node_passwords: WatchedFile[list[str]] | None = None,
        bootstrap_users: Mapping[str, Credentials],
        token_keys: "TokenKeys | None" = None,
        own_subject: Callable[[], str | None] = lambda: None,
        is_demanded: bool = True,
    ) -> None:
        """``own_subject``: of the certificate that this node shows, as it is now."""
        self.settings = settings
        self.is_demanded = is_demanded
        """Else who proves nothing is let in as well."""
        self.patience = LoginRateLimit(settings.failures_per_address_max)
        self._image = image
        self._node_passwords = node_passwords
        self._node_known: tuple[object, KnownCredential] | None = None  # and what it was made of
        self._bootstrap_users = bootstrap_users
        self._token_keys = token_keys
        self._own_subject = own_subject
        self._decoys: tuple[object, dict[Scram | None, Decoys]] | None = None
        """And the users that they are alike; None: for passwords of PLAIN."""
        self._rules = PrincipalMapping(settings.principal_mapping_rules)
        self._secret = secrets.token_bytes(SECRET_BYTES)
        """In place of the cluster's, which comes with its first user."""
        self.threads = ThreadPoolExecutor(WORKERS, thread_name_prefix="password")

    @classmethod
    def load(
        cls,
        settings: SaslSection,
        image: Callable[[], MetadataImage],
        own_subject: Callable[[], str | None] = lambda: None,
        *,
        is_demanded: bool = True,
    ) -> "Authenticator":
        """Reads the files that the settings name. Raises ConfigError."""
        passwords = None
        if settings.node_password_file is not None:
            passwords = WatchedFile(settings.node_password_file, _node_passwords)
        users: Mapping[str, Credentials] = {}
        if settings.bootstrap_file is not None:
            users = read_bootstrap_users(settings.bootstrap_file)
        return cls(
            settings,
            image,
            node_passwords=passwords,
            bootstrap_users=users,
            token_keys=token_keys_of(settings),
            own_subject=own_subject,
            is_demanded=is_demanded,
        )

    def close(self) -> None:
        self.threads.shutdown(wait=False)

    def offered(self, *, encrypted: bool) -> tuple[str, ...]:
        """Mechanisms, on a connection of that kind."""
        settings = self.settings
        if encrypted or settings.allow_plain_without_tls:
            return settings.mechanisms
        return tuple(it for it in settings.mechanisms if it != PLAIN)

    def scram(self, mechanism: str) -> ServerExchange:
        scram = Scram(mechanism)
        nonce = b64encode(secrets.token_bytes(NONCE_BYTES)).decode()
        return ServerExchange(scram, lambda user: self._known(scram, user), nonce)

    def of_plain(self, user: str) -> tuple[Scram, KnownCredential]:
        """What a password of PLAIN is held against."""
        stored = {} if user == self.settings.node_user else self._credentials(user)
        for scram in PASSWORDS_OF:
            if scram.value in stored:
                return scram, KnownCredential([stored[scram.value].credential])
        scram, decoy = self._decoy(None, user)
        return scram, KnownCredential([decoy], is_decoy=True)

    def verified(self, token: str) -> "Verified":
        """Raises AuthenticationFailed."""
        assert self._token_keys is not None, "OAUTHBEARER is not offered"
        return self._token_keys.verify(token, time.time())

    def certified(self, subject: str) -> tuple[Principal, bool]:
        """Whom a certificate of this subject, as RFC 4514 writes it, stands for; and is it a node?

        Raises AuthenticationFailed.
        """
        principal = self._rules.principal(subject)
        is_node = principal.name in self.settings.node_principals
        return principal, is_node or subject == self._own_subject()

    def is_node(self, user: str) -> bool:
        """Of a user that has proved a password."""
        return user == self.settings.node_user

    def _known(self, scram: Scram, user: str) -> KnownCredential:
        if user == self.settings.node_user:
            if scram.value == self.settings.node_mechanism:
                return self._node(scram)
        elif (stored := self._credentials(user).get(scram.value)) is not None:
            return KnownCredential([stored.credential])
        return KnownCredential([self._decoy(scram, user)[1]], is_decoy=True)

    def _credentials(self, user: str) -> Credentials:
        """None for a user that does not exist. The metadata's users come before those of the file."""
        if user == ANONYMOUS.name:
            return {}
        return self._image().users.get(user) or self._bootstrap_users.get(user, {})

    def _node(self, scram: Scram) -> KnownCredential:
        """As a decoy has it, for no client is to see which users are a node's."""
        assert self.settings.node_user is not None
        assert self._node_passwords is not None
        passwords = self._node_passwords.content()
        salt, iterations, _, _ = self._decoy(scram, self.settings.node_user)[1]
        made_of = salt, iterations, tuple(passwords)
        if self._node_known is None or self._node_known[0] != made_of:
            credentials = [
                credential_of(scram, salted_password(scram, it, salt, iterations), salt, iterations)
                for it in passwords
            ]
            self._node_known = made_of, KnownCredential(credentials)
        return self._node_known[1]

    def _decoy(self, scram: Scram | None, user: str) -> tuple[Scram, Credential]:
        """None: what a password of PLAIN is held against."""
        users = self._image().users
        if self._decoys is None or self._decoys[0] is not users:
            self._decoys = users, self._decoys_alike({**self._bootstrap_users, **users})
        return self._decoys[1][scram].of(user, self._decoy_secret())

    @staticmethod
    def _decoys_alike(users: Mapping[str, Credentials]) -> dict[Scram | None, Decoys]:
        kinds: dict[Scram | None, list[Kind]] = {None: [], **{it: [] for it in PASSWORDS_OF}}
        for stored in users.values():
            found = [
                Kind.of(scram, stored[scram.value].credential)
                for scram in PASSWORDS_OF
                if scram.value in stored
            ]
            for kind in found:
                kinds[kind.scram].append(kind)
            kinds[None].extend(found[:1])
        return {it: Decoys(it or PASSWORDS_OF[0], kinds[it]) for it in kinds}

    def _decoy_secret(self) -> bytes:
        chosen = self._image().decoy_secret
        return b64decode(chosen) if chosen else self._secret


def _node_passwords(path: Path) -> list[str]:
    """A few: each is hashed again with each change, while all logins wait. Raises ConfigError."""
    key = "sasl.node_password_file"
    passwords = lines_of(path, key)
    if len(passwords) > NODE_PASSWORDS_MAX:
        problem = f"{path} has {len(passwords)} passwords"
        raise ConfigError(key, problem, f"keep {NODE_PASSWORDS_MAX} at most")
    return passwords


def token_keys_of(settings: SaslSection) -> "TokenKeys | None":
    """None: tokens are not accepted. Reads a file. Raises ConfigError."""
    if OAUTHBEARER not in settings.mechanisms:
        return None
    try:
        from streamlog.kafka.auth.token_keys import TokenKeys
    except ImportError:
        remedy = "pip install 'streamlog[oauth]'"
        raise ConfigError("sasl.mechanisms", "OAUTHBEARER needs PyJWT", remedy) from None
    return TokenKeys(settings)
