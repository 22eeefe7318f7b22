"""Logins at the NATS port: what the CONNECT of a client proves, and what the client may do then.

A CONNECT is judged by the first of these that it has, and by nothing else:

1. ``jwt``, where the node trusts an operator: the user JWT, and ``sig`` over the nonce.
2. ``nkey``: a public key that ``authorization.nkeys`` or an access rule names, and ``sig`` over the nonce.
3. ``user`` and ``pass``: a user of the cluster.
4. ``auth_token``: a token of ``nats_listen.token_file``.
5. The certificate of the connection, where the listener verifies certificates.

Without any of them a client is anonymous where no authentication is configured, and refused elsewhere.
What is sent in the clear (passwords, tokens, JWTs of bearers) is refused on connections without TLS from
other machines, unless ``allow_plain_without_tls`` is set. Failures are delayed and counted by address,
together with those of the other listeners.

The client's JWT and the node's ``permissions`` say which subjects a client may use. The access rules of the
cluster hold besides, for what streams take. A client needs WRITE on a stream to publish to it
(``AdmittedClient.may_write``). A plain subscription shows the same records as a consumer, so it needs READ
(``AdmittedClient.may_read``).

All of this can end while a client is connected: ``AdmittedClient.expires_s`` is known beforehand, the rest
``AdmittedClient.ending`` finds out.
"""

import ipaddress
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from streamlog.acl.rules import Operation
from streamlog.authn.nkey import NkeyKind, is_public_key
from streamlog.authn.plain import FIELD_BYTES_MAX
from streamlog.authn.principal import ANONYMOUS, USER, Principal
from streamlog.authn.session import Session
from streamlog.config import NatsListenAuthSection, NatsPermissionsSection
from streamlog.config.token_file import Tokens
from streamlog.errors import AuthenticationFailed, ConfigError, InvalidSubject
from streamlog.nats.auth import err
from streamlog.nats.auth.account_files import AccountSource, OperatorSource
from streamlog.nats.auth.operator_jwt import (
    AccountClaims,
    TrustedOperator,
    UserClaims,
    UserVerdict,
    check_signature,
    judged,
    read_user,
)
from streamlog.nats.auth.subject_permissions import (
    PermissionRules,
    ReplyLimit,
    SubjectPermissions,
)

DEFAULT: Final = "default"
"""Of ``nats_listen.permissions``: all users that it does not name."""
NONCE_BYTES: Final = 16
STREAMS_MAX: Final = 10_000
"""Remembered answers about streams for one connection; beyond it they are all found again."""
TOKEN_CHECK_S: Final = 1.0
"""How long a token that was let in is taken for good before its file is read again."""
CLIENT_NAME_CHARS_MAX: Final = 250


class TopicRights(Protocol):
    """``Permissions`` of the package ``authz``, which is above this one."""

    @property
    def rules(self) -> object:
        """Another object when some rule has changed."""
        ...

    def grants_topic(self, operation: Operation, name: str) -> bool: ...


class PasswordUsers(NamedTuple):
    """The users of the cluster."""

    log_in: Callable[[str, str, str], Awaitable[Session]]
    """Of user, password and address. Raises AuthenticationFailed, late and counted."""
    credential: Callable[[str], object]
    """What the password of a user is held against; another value when it has changed."""


class PortServices(NamedTuple):
    """What the node has for its listeners."""

    users: PasswordUsers | None
    """None: no user can log in with a password."""
    certified: Callable[[str], tuple[Principal, bool]]
    """Of a certificate's subject: the principal, and whether it is a node. Raises AuthenticationFailed."""
    examine: Callable[[str], AbstractAsyncContextManager[object]]
    """Of an address: where a login from there is looked at, which delays and counts failures."""
    access_of: Callable[[Session], TopicRights | None]
    """None: everything is allowed."""
    names: Callable[[str], bool]
    """Whether a rule names the principal."""
    not_authenticated: Callable[[Session, str], None]
    """Audits a refusal and its reason."""
    nkeys: Mapping[str, str]
    """User names by public keys."""
    wall_s: Callable[[], float]
    monotonic_s: Callable[[], float]


class PortRequirements(NamedTuple):
    """What other sections of the settings say."""

    is_required: bool
    """Clients of the cluster log in (``Settings.authentication_known``), or this port requires
    certificates."""
    is_permissive: bool = False
    """``security.permissive``: a client that proves nothing is let in as well."""
    session_lifetime_s: float = 0.0
    """After which a password, a token or an NKey has to be proved again; 0: never."""


class PortLimits(NamedTuple):
    """Limits of one connection; None: only the listener's own limit holds."""

    subscriptions_max: int | None = None
    payload_bytes_max: int | None = None
    account_connections_max: int | None = None
    """Connections of all users of its account together."""


NO_LIMITS: Final = PortLimits()

Stay = Callable[[], Awaitable[str | None]]
"""Why a client has to go now, as the text of an ``-ERR``; None: it may stay."""


async def _stays() -> str | None:
    return None


@dataclass(slots=True, eq=False)
class AdmittedClient:
    """A client that is let in."""

    session: Session
    permissions: SubjectPermissions
    access: TopicRights | None
    """None: it may do everything with every stream."""
    limits: PortLimits = NO_LIMITS
    account: str = ""
    """The public key of its account; empty: it came without a JWT."""
    stay: Stay = _stays
    is_tolerated: bool = False
    """It has proved nothing, and only ``security.permissive`` lets it in."""
    expiry: str = err.AUTHENTICATION_EXPIRED
    """What it is told when its login ends."""
    _rules: object = None
    _answers: dict[tuple[Operation, str], bool] = field(default_factory=dict)
    """By ``_rules``, and no other."""

    @property
    def expires_s(self) -> float | None:
        """By the monotonic clock: the listener then says ``expiry`` and closes."""
        return self.session.ends_s

    def may_write(self, stream: str) -> bool:
        """Whether it may publish what this stream takes. A refusal is audited."""
        return self._may(Operation.WRITE, stream)

    def may_read(self, stream: str) -> bool:
        """Whether a plain subscription of it may receive what this stream takes. To be asked for each
        stream that a new subscription overlaps, and again before a delivery: streams and rules change.
        A refusal is audited.
        """
        return self._may(Operation.READ, stream)

    def may_read_all(self, streams: Iterable[str]) -> bool:
        return all(map(self.may_read, streams))

    async def ending(self) -> str | None:
        """The ``-ERR`` with which the listener closes the connection now, since the user or its account
        was revoked or changed, or its token, key or password is no longer good; None: it stays. To be
        asked every few seconds.
        """
        return await self.stay()

    def _may(self, operation: Operation, stream: str) -> bool:
        if self.access is None:
            return True
        rules = self.access.rules
        if rules is not self._rules or len(self._answers) > STREAMS_MAX:
            self._rules = rules
            self._answers.clear()
        key = operation, stream
        found = self._answers.get(key)
        if found is None:
            found = self._answers[key] = self.access.grants_topic(operation, stream)
        return found


class PortAuthenticator:
    """The logins of one listener."""

    def __init__(
        self,
        settings: NatsListenAuthSection,
        requirements: PortRequirements,
        services: PortServices,
    ) -> None:
        """Reads the files that the settings name. Raises ConfigError."""
        self._settings = settings
        self._requirements = requirements
        self._services = services
        self._rules = {
            user: permission_rules(user, each) for user, each in settings.permissions.items()
        }
        self._tokens: Tokens | None = None
        if settings.token_file is not None:
            self._tokens = Tokens(
                settings.token_file, key="nats_listen.token_file", examine=services.examine
            )
            self._tokens.check()
        self._token_users: dict[str, str | None] = {}
        """Since ``_token_users_s``, of tokens that were let in."""
        self._token_users_s = float("-inf")
        self._operator: OperatorSource | None = None
        if settings.operator is not None:
            self._operator = OperatorSource(settings.operator, settings.operator_signing_keys)
        self._accounts = AccountSource(settings.account_jwts)
        for account in settings.account_users:
            if not is_public_key(account, NkeyKind.ACCOUNT):
                problem = f"{account[:60]!r} is not the public key of an account"
                raise ConfigError("nats_listen.account_users", problem, "it begins with A")

    @property
    def is_configured(self) -> bool:
        """There is a way to log in that clients have to use."""
        return self._requirements.is_required or asks_for_logins(
            self._settings, has_nkeys=bool(self._services.nkeys)
        )

    @property
    def required(self) -> bool:
        """``auth_required`` of INFO: a client that proves nothing is refused."""
        return self.is_configured and not self._requirements.is_permissive

    @property
    def nonce_wanted(self) -> bool:
        """INFO needs a ``nonce``: some client might sign it."""
        return self._operator is not None or (self.is_configured and self._settings.nkey_auth)

    @staticmethod
    def new_nonce() -> str:
        """For one connection."""
        return secrets.token_urlsafe(NONCE_BYTES)

    async def log_in(
        self,
        connect: Mapping[str, Any],
        *,
        nonce: str,
        host: str,
        tls_subject: str | None,
        is_encrypted: bool,
    ) -> AdmittedClient:
        """``tls_subject``: of the certificate that TLS has verified, as RFC 4514 writes it.

        Raises AuthenticationFailed: the client is told ``AUTHORIZATION_VIOLATION`` and no more.
        """
        session = Session(host=host, client_id=_client_name(connect))
        attempt = _Attempt(connect, nonce, session, tls_subject, is_encrypted or _is_local(host))
        try:
            return await self._logged_in(attempt)
        except AuthenticationFailed as error:
            self._services.not_authenticated(session, str(error))
            raise

    async def _logged_in(self, attempt: "_Attempt") -> AdmittedClient:
        if not self.is_configured:
            if attempt.tls_subject is not None:
                return self._by_certificate(attempt, attempt.tls_subject)
            return self._login(attempt.session)
        if self._operator is not None and attempt.has("jwt"):
            return await self._by_jwt(attempt, self._operator)
        if attempt.has("nkey"):
            return await self._by_nkey(attempt)
        if attempt.has("user"):
            return await self._by_password(attempt)
        if attempt.has("auth_token"):
            return await self._by_token(attempt)
        if attempt.tls_subject is not None:
            return self._by_certificate(attempt, attempt.tls_subject)
        if attempt.has("jwt"):
            raise AuthenticationFailed("a JWT, and nats_listen.operator is not set")
        if self.required:
            raise AuthenticationFailed("no credentials")
        login = self._login(attempt.session)
        login.is_tolerated = True
        return login

    async def _by_password(self, attempt: "_Attempt") -> AdmittedClient:
        users = self._services.users
        if users is None:
            raise AuthenticationFailed("a password, and users cannot log in with one here")
        attempt.check_secrecy(self._settings, "a password")
        user, password = attempt.text("user"), attempt.text("pass")
        if not 0 < len(password.encode()) <= FIELD_BYTES_MAX >= len(user.encode()):
            raise AuthenticationFailed("no password, or user or password are too long")
        credential = users.credential(user)
        found = await users.log_in(user, password, attempt.session.host)

        async def stay() -> str | None:
            same = users.credential(user) == credential
            return None if same else err.AUTHENTICATION_REVOKED

        return self._login(self._proved(attempt, found.principal), stay)

    async def _by_token(self, attempt: "_Attempt") -> AdmittedClient:
        tokens = self._tokens
        if tokens is None:
            raise AuthenticationFailed("a token, and nats_listen.token_file is not set")
        attempt.check_secrecy(self._settings, "a token")
        token = attempt.text("auth_token")
        user = await tokens.demand(token, attempt.session.host)

        async def stay() -> str | None:
            same = await self._user_of_token(tokens, token) == user
            return None if same else err.AUTHENTICATION_REVOKED

        return self._login(self._proved(attempt, Principal.user(user) if user else ANONYMOUS), stay)

    async def _by_nkey(self, attempt: "_Attempt") -> AdmittedClient:
        if not self._settings.nkey_auth:
            raise AuthenticationFailed("an NKey, and nats_listen.nkey_auth is off")
        key = attempt.text("nkey")
        async with self._services.examine(attempt.session.host):
            check_signature(key, attempt.nonce, attempt.text("sig"))
            if not self._knows(key):
                raise AuthenticationFailed("neither authorization.nkeys nor a rule names the NKey")

        async def stay() -> str | None:
            return None if self._knows(key) else err.AUTHENTICATION_REVOKED

        return self._login(self._proved(attempt, self._principal_of(key)), stay)

    async def _user_of_token(self, tokens: Tokens, token: str) -> str | None:
        """Of one that was let in; the file is read for all its connections together."""
        now_s = self._services.monotonic_s()
        if now_s - self._token_users_s > TOKEN_CHECK_S:
            self._token_users, self._token_users_s = {}, now_s
        users = self._token_users
        if token not in users:
            users[token] = await tokens.user_of(token)
        return users[token]

    def _by_certificate(self, attempt: "_Attempt", subject: str) -> AdmittedClient:
        principal, is_node = self._services.certified(subject)
        return self._login(attempt.session._replace(principal=principal, is_node=is_node))

    async def _by_jwt(self, attempt: "_Attempt", operator: OperatorSource) -> AdmittedClient:
        host = attempt.session.host
        async with self._services.examine(host):
            claims = read_user(attempt.text("jwt"))
            grantors = self._grantors(claims, operator)
            verdict = self._judged(claims, grantors, host)
            if verdict.is_bearer:
                attempt.check_secrecy(self._settings, "the JWT of a bearer")
            else:
                check_signature(claims.sub, attempt.nonce, attempt.text("sig"))

        async def stay() -> str | None:
            present = self._grantors(claims, operator)
            if present == grantors:  # what time ends is in the session
                return None
            try:
                now = self._judged(claims, present, host)
            except AuthenticationFailed:
                return err.AUTHENTICATION_REVOKED
            is_same = _without_end(now) == _without_end(verdict)
            return None if is_same and not _is_sooner(now, verdict) else err.AUTHENTICATION_REVOKED

        principal = self._principal_of_user(claims, is_bearer=verdict.is_bearer)
        session = attempt.session._replace(principal=principal)
        if verdict.expires_s is not None:
            left_s = verdict.expires_s - self._services.wall_s()
            session = session._replace(ends_s=self._services.monotonic_s() + left_s)
        limits = PortLimits(
            verdict.subscriptions_max,
            verdict.payload_bytes_max,
            verdict.account_connections_max,
        )
        login = self._login(session, stay, verdict.rules, limits, verdict.account)
        if verdict.ends_with_account:
            login.expiry = err.ACCOUNT_AUTHENTICATION_EXPIRED
        return login

    def _grantors(self, claims: UserClaims, operator: OperatorSource) -> "_Grantors":
        return _Grantors(operator.operator(), self._accounts.account(claims.account))

    def _judged(self, claims: UserClaims, grantors: "_Grantors", host: str) -> UserVerdict:
        now_s = self._services.wall_s()
        return judged(claims, grantors.operator, grantors.account, host=host, now_s=now_s)

    def _login(
        self,
        session: Session,
        stay: Stay = _stays,
        own: PermissionRules | None = None,
        limits: PortLimits = NO_LIMITS,
        account: str = "",
    ) -> AdmittedClient:
        """``own``: the permissions of its JWT."""
        return AdmittedClient(
            session,
            SubjectPermissions(self._rules_for(session, own), self._services.monotonic_s),
            self._services.access_of(session),
            limits,
            account,
            stay,
        )

    def _rules_for(
        self, session: Session, own: PermissionRules | None
    ) -> Iterable[PermissionRules]:
        """Those of the settings for this user hold beside its own; the default ones instead of none."""
        if own is not None:
            yield own
        kind, name = session.principal
        named = self._rules.get(name) if kind == USER and name != DEFAULT else None
        if named is not None:
            yield named
        elif own is None and DEFAULT in self._rules:
            yield self._rules[DEFAULT]

    def _proved(self, attempt: "_Attempt", principal: Principal) -> Session:
        lifetime_s = self._requirements.session_lifetime_s
        ends_s = self._services.monotonic_s() + lifetime_s if lifetime_s else None
        return attempt.session._replace(principal=principal, ends_s=ends_s)

    def _knows(self, key: str) -> bool:
        return key in self._services.nkeys or self._services.names(str(Principal.user(key)))

    def _principal_of(self, key: str) -> Principal:
        return Principal.user(self._services.nkeys.get(key, key))

    def _principal_of_user(self, claims: UserClaims, *, is_bearer: bool) -> Principal:
        """By its own key where that is listed, else by its account's, else its key.

        A bearer has not proved to have the key: an account could name any key there. All that is
        proved of it is its account.
        """
        name = self._settings.account_users.get(claims.account)
        if is_bearer:
            return Principal.user(claims.account if name is None else name)
        if name is not None and claims.sub not in self._services.nkeys:
            return Principal.user(name)
        return self._principal_of(claims.sub)


def asks_for_logins(settings: NatsListenAuthSection, *, has_nkeys: bool) -> bool:
    """By settings of the port alone. ``has_nkeys``: ``authorization.nkeys`` has some."""
    return (
        settings.token_file is not None
        or settings.operator is not None
        or bool(settings.password_auth)
        or (settings.nkey_auth and has_nkeys)
    )


def permission_rules(user: str, section: NatsPermissionsSection) -> PermissionRules:
    """Raises ConfigError."""
    replies = None
    if section.replies_max:
        replies = ReplyLimit(section.replies_max, section.replies_ttl_ms / 1000)
    try:
        return PermissionRules(
            publish_allow=section.publish.allow,
            publish_deny=section.publish.deny,
            subscribe_allow=section.subscribe.allow,
            subscribe_deny=section.subscribe.deny,
            replies=replies,
        )
    except InvalidSubject as error:
        key = f"nats_listen.permissions.{user}"
        raise ConfigError(key, str(error), "correct the subject") from None


class _Grantors(NamedTuple):
    """Whose JWTs decide about a user."""

    operator: TrustedOperator
    account: AccountClaims | None


def _without_end(verdict: UserVerdict) -> UserVerdict:
    return verdict._replace(expires_s=None, ends_with_account=False)


def _is_sooner(now: UserVerdict, before: UserVerdict) -> bool:
    """It ends before what the session knows."""
    return now.expires_s is not None and (
        before.expires_s is None or now.expires_s < before.expires_s
    )


class _Attempt(NamedTuple):
    """One CONNECT."""

    connect: Mapping[str, Any]
    nonce: str
    session: Session
    """Before anything is proved."""
    tls_subject: str | None
    is_private: bool
    """No other machine can read along."""

    def has(self, key: str) -> bool:
        return bool(self.connect.get(key))

    def text(self, key: str) -> str:
        """Empty: there is none. Raises AuthenticationFailed."""
        value = self.connect.get(key, "")
        if not isinstance(value, str) or not _is_unicode(value):
            raise AuthenticationFailed(f"{key} of CONNECT is no text")
        return value

    def check_secrecy(self, settings: NatsListenAuthSection, what: str) -> None:
        """Raises AuthenticationFailed."""
        if not (self.is_private or settings.allow_plain_without_tls):
            raise AuthenticationFailed(f"{what} without TLS (nats_listen.allow_plain_without_tls)")


def _client_name(connect: Mapping[str, Any]) -> str:
    name = connect.get("name")
    if not isinstance(name, str) or not _is_unicode(name):
        return ""
    return name[:CLIENT_NAME_CHARS_MAX]


def _is_unicode(text: str) -> bool:
    """JSON may have halves of surrogate pairs, which nothing can encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_local(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
