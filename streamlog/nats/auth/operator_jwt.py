"""Operators, accounts and users of NATS by their JWTs: who is let in, and with which permissions. Pure.

An operator signs accounts, an account signs users, each with its own key or one of its signing keys; a
user signs the nonce of the connection. ``TrustedOperator`` has the keys by which accounts are believed,
``judged`` looks at a user. The tokens are those of ``nsc`` in version 2 (nats-io/jwt): three parts in
base64url, signed by Ed25519, with ``"alg": "ed25519-nkey"``. The verdicts are those of nats-server (its
auth.go and accounts.go), but for these, where fewer are let in:

- Tokens of version 1, which no tool has written since 2020, are refused.
- An operator whose JWT has expired is not believed.
- A list of permissions with an entry that is no subject refuses its user; nats-server passes it over.
- A user of an account with an authorization service (``auth_users``) is refused, unless it is one of
  these; so is one that needs a proxy.

A scoped signing key gives its users the permissions and limits of its template. Where neither the user
nor the template has permissions, the account's ``default_permissions`` hold.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from datetime import datetime, time, timedelta
from itertools import product
from typing import Annotated, Final, Literal, NamedTuple, Self, TypeVar
from zoneinfo import ZoneInfo

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from streamlog.authn.nkey import (
    NkeyKind,
    decoded_base64url,
    decoded_signature,
    is_public_key,
    is_signed_by,
)
from streamlog.errors import AuthenticationFailed, InvalidSubject
from streamlog.nats.auth.subject_permissions import PermissionRules, ReplyLimit, SubjectList

TOKEN_CHARS_MAX: Final = 64 * 1024
"""Of a user's token, which any client may send; it is read before its signature is checked."""
STORED_TOKEN_CHARS_MAX: Final = 1024 * 1024
"""Of the tokens in this node's files."""
UNLIMITED: Final = -1
STANDARD: Final = "STANDARD"
"""The connection type of a client by TCP."""
EVERY_USER: Final = "*"
"""Of revocations."""
EXPANSIONS_MAX: Final = 4_096
"""Subjects that one list of a template may become."""
REPLIES_DEFAULT: Final = ReplyLimit()
NS_PER_S: Final = 1_000_000_000

_DECORATED: Final = re.compile(r"-{3,}[^\n]*-{3,}\r?\n\s*([\w.=-]+)\s*\r?\n-{3,}[^\n]*-{3,}")
_TIME_OF_DAY: Final = re.compile(r"(\d{1,2}):(\d\d):(\d\d)")
_PLACEHOLDER: Final = re.compile(r"\{\{([^}]+)\}\}")
_TAG: Final = re.compile(r"(account-)?tag\((.*)\)", re.IGNORECASE)

Int = Annotated[int, Field(ge=-(2**63), lt=2**63, strict=True)]
Flag = Annotated[bool, Field(strict=True)]


class _JwtPart(BaseModel):
    """Of a token. What is not known is passed over, null counts as absent, as in Go."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: object) -> object:
        if isinstance(value, Mapping):
            return {key: it for key, it in value.items() if it is not None}
        return value


class _Header(_JwtPart):
    typ: str = ""
    alg: str = ""


def _listed(value: object) -> object:
    """Networks are a list, or one text with commas."""
    if isinstance(value, str):
        return [text for it in value.split(",") if (text := it.strip())]
    return value


Texts = tuple[str, ...]


class SubjectLists(_JwtPart):
    """Allowed and denied subjects; None: there is no such list."""

    allow: Texts | None = None
    deny: Texts | None = None


class ReplyClaim(_JwtPart):
    """``resp``: how often and how long messages may be answered; 0: nats-server's defaults."""

    max: Int = 0
    ttl: Int = 0
    """Nanoseconds."""

    def limit(self) -> ReplyLimit:
        return ReplyLimit(
            self.max or REPLIES_DEFAULT.messages_max,
            self.ttl / NS_PER_S if self.ttl else REPLIES_DEFAULT.ttl_s,
        )


class PermissionClaims(_JwtPart):
    """What may be published, subscribed to and answered."""

    pub: SubjectLists = SubjectLists()
    sub: SubjectLists = SubjectLists()
    resp: ReplyClaim | None = None

    def rules(self) -> PermissionRules | None:
        """None: they say nothing. Raises InvalidSubject."""
        lists = (self.pub.allow, self.pub.deny, self.sub.allow, self.sub.deny)
        if self.resp is None and not any(lists):
            return None
        has_publish = bool(self.pub.allow or self.pub.deny)
        return PermissionRules(
            publish_allow=self.pub.allow if has_publish else None,
            publish_deny=self.pub.deny or (),
            subscribe_allow=self.sub.allow or None,
            subscribe_deny=self.sub.deny or (),
            replies=None if self.resp is None else self.resp.limit(),
        )


class TimeSpan(_JwtPart):
    """A time of each day; where it ends before it starts, it crosses midnight."""

    start: str = ""
    end: str = ""


class UserGrant(PermissionClaims):
    """What a user's token or a template grants. ``Int`` fields that are missing are 0, as in Go."""

    subs: Int = 0
    data: Int = 0
    payload: Int = 0
    src: Annotated[Texts | None, BeforeValidator(_listed)] = None
    times: tuple[TimeSpan, ...] | None = None
    times_location: str = ""
    bearer_token: Flag = False
    proxy_required: Flag = False
    allowed_connection_types: Texts | None = None


class Template(UserGrant):
    """Of a scoped signing key."""

    subs: Int = UNLIMITED
    data: Int = UNLIMITED
    payload: Int = UNLIMITED


class _UserFields(UserGrant):
    type: str = ""
    version: Int = 0
    issuer_account: str = ""
    tags: Texts = ()

    @property
    def grant(self) -> UserGrant:
        return UserGrant.model_construct(
            **{name: getattr(self, name) for name in UserGrant.model_fields}
        )


class SigningScope(_JwtPart):
    """A signing key whose users get what the template grants."""

    kind: Literal["user_scope"]
    key: str
    template: Template = Template()


class _AccountLimits(_JwtPart):
    subs: Int = 0
    payload: Int = 0
    conn: Int = 0
    disallow_bearer: Flag = False


class _ExternalAuthorization(_JwtPart):
    auth_users: Texts = ()


class _AccountFields(_JwtPart):
    type: str = ""
    version: Int = 0
    limits: _AccountLimits = _AccountLimits()
    signing_keys: tuple[str | SigningScope, ...] = ()
    revocations: dict[str, Int] = Field(default_factory=dict)
    default_permissions: PermissionClaims = PermissionClaims()
    authorization: _ExternalAuthorization = _ExternalAuthorization()
    tags: Texts = ()


class _OperatorFields(_JwtPart):
    type: str = ""
    version: Int = 0
    signing_keys: Texts = ()
    strict_signing_key_usage: Flag = False


class _Claims(_JwtPart):
    iss: str
    sub: str
    iat: Int = 0
    exp: Int = 0
    nbf: Int = 0
    name: str = ""
    type: str = ""
    """Of version 1 only."""

    def time_problem(self, now_s: float) -> str:
        """ "": it holds now."""
        if self.exp and now_s >= self.exp:
            return "has expired"
        if self.nbf and self.nbf > now_s:
            return "is not valid yet"
        return ""


class UserClaims(_Claims):
    """Of a token whose signature is its issuer's. That says nothing about the issuer."""

    nats: _UserFields

    @property
    def account(self) -> str:
        """The public key of the account that it claims to belong to."""
        return self.nats.issuer_account or self.iss


class AccountClaims(_Claims):
    """Of a token whose signature is its issuer's."""

    nats: _AccountFields


class OperatorClaims(_Claims):
    """Of a token whose signature is its issuer's."""

    nats: _OperatorFields


class TrustedOperator(NamedTuple):
    """Who signs accounts."""

    keys: frozenset[str]
    may_sign_users: bool
    """An account's own key signs users, besides its signing keys (not ``strict_signing_key_usage``)."""
    expires_s: int = 0
    """Unix time; 0: never."""

    @classmethod
    def of_jwt(cls, text: str) -> Self:
        """Raises AuthenticationFailed with what is wrong."""
        claims = _read(plain_token(text), OperatorClaims, "operator", STORED_TOKEN_CHARS_MAX)
        signing = claims.nats.signing_keys
        if claims.iss not in (claims.sub, *signing):
            raise AuthenticationFailed("the operator JWT is signed by another operator")
        strict = claims.nats.strict_signing_key_usage
        own = () if strict else (claims.sub,)
        return cls.of_keys(*own, *signing)._replace(may_sign_users=not strict, expires_s=claims.exp)

    @classmethod
    def of_keys(cls, *keys: str) -> Self:
        """Public keys of an operator. Raises AuthenticationFailed with what is wrong."""
        for each in keys:
            if not is_public_key(each, NkeyKind.OPERATOR):
                raise AuthenticationFailed(f"{each[:60]!r} is not the public key of an operator")
        return cls(frozenset(keys), may_sign_users=True)


class UserVerdict(NamedTuple):
    """A user that is let in."""

    user: str
    """Its public key."""
    account: str
    rules: PermissionRules | None
    """None: neither the user nor its account has permissions."""
    subscriptions_max: int | None
    payload_bytes_max: int | None
    account_connections_max: int | None
    expires_s: float | None
    """Unix time."""
    is_bearer: bool
    """The token is enough by itself; else the user signs the nonce."""
    ends_with_account: bool = False
    """It is the account that ends at ``expires_s``."""


def plain_token(text: str) -> str:
    """Of a file that may have the lines around a token that ``nsc`` writes."""
    found = _DECORATED.search(text)
    return found[1] if found else text.strip()


def read_account(text: str) -> AccountClaims:
    """Raises AuthenticationFailed with what is wrong, but for its time and its issuer."""
    return _read(plain_token(text), AccountClaims, "account", STORED_TOKEN_CHARS_MAX)


def read_user(token: str) -> UserClaims:
    """Raises AuthenticationFailed with what is wrong, but for its time and its issuer."""
    return _read(token, UserClaims, "user", TOKEN_CHARS_MAX)


def check_signature(public: str, nonce: str, signature: str) -> None:
    """Of the nonce of a connection, by a user's key. Raises AuthenticationFailed."""
    if not nonce or not signature:
        raise AuthenticationFailed("the signature of the nonce is missing")
    try:
        data = decoded_signature(signature)
    except ValueError:
        raise AuthenticationFailed("the signature is not base64url") from None
    if not is_signed_by(public, NkeyKind.USER, nonce.encode(), data):
        raise AuthenticationFailed("the signature is not this key's over the nonce")


def judged(
    claims: UserClaims,
    operator: TrustedOperator,
    account: AccountClaims | None,
    *,
    host: str,
    now_s: float,
) -> UserVerdict:
    """Whether the user is let in from an address now. Raises AuthenticationFailed with the reason.

    ``account``: the one that the user claims to be of; None: it is not known. Whether
    the client has the user's key is not looked at here: see ``check_signature``.
    """
    if problem := claims.time_problem(now_s):
        raise AuthenticationFailed(f"the user JWT {problem}")
    account = _believed(account, claims.account, operator, now_s)
    grant = _grant(claims, account, operator)
    if grant.bearer_token and account.nats.limits.disallow_bearer:
        raise AuthenticationFailed("the account allows no bearer tokens")
    if grant.proxy_required:
        raise AuthenticationFailed("the user has to come by a proxy")
    types = {it.upper() for it in grant.allowed_connection_types or ()}
    if types and STANDARD not in types:
        raise AuthenticationFailed("the user may not come by this type of connection")
    if _is_revoked(claims, account):
        raise AuthenticationFailed("the user has been revoked")
    if (helpers := account.nats.authorization.auth_users) and claims.sub not in helpers:
        raise AuthenticationFailed("the account asks an authorization service, which is not asked")
    _check_source(grant, host)
    ends_s = _end_of_times(grant, now_s)
    try:
        rules = grant.rules() or account.nats.default_permissions.rules()
    except InvalidSubject as error:
        raise AuthenticationFailed(f"permissions: {error}") from None
    limits = account.nats.limits
    ends = [float(it) for it in (claims.exp, account.exp, ends_s or 0.0) if it]
    expires_s = min(ends, default=None)
    return UserVerdict(
        claims.sub,
        account.sub,
        rules,
        _least(grant.subs, limits.subs),
        _least(grant.payload, limits.payload),
        _least(limits.conn),
        expires_s,
        grant.bearer_token,
        ends_with_account=expires_s is not None and expires_s == account.exp,
    )


def _believed(
    account: AccountClaims | None, key: str, operator: TrustedOperator, now_s: float
) -> AccountClaims:
    if account is None or account.sub != key:
        raise AuthenticationFailed("the user's account is not known")
    if operator.expires_s and now_s >= operator.expires_s:
        raise AuthenticationFailed("the operator JWT has expired")
    if account.iss not in operator.keys:
        raise AuthenticationFailed("the account JWT is not signed by the trusted operator")
    if problem := account.time_problem(now_s):
        raise AuthenticationFailed(f"the account JWT {problem}")
    return account


def _grant(claims: UserClaims, account: AccountClaims, operator: TrustedOperator) -> UserGrant:
    """The user's own, or that of its issuer's template. Raises AuthenticationFailed for an issuer
    that is none of the account's keys.
    """
    own = claims.nats.grant
    for each in account.nats.signing_keys:
        if isinstance(each, str):
            if each == claims.iss:
                return own
        elif each.key == claims.iss:
            if own != UserGrant():
                raise AuthenticationFailed("a user of a scoped key has permissions of its own")
            return _filled(each.template, claims, account)
    if claims.iss == account.sub and operator.may_sign_users:
        return own
    raise AuthenticationFailed("the user JWT is signed by none of its account's keys")


def _is_revoked(claims: UserClaims, account: AccountClaims) -> bool:
    revoked = account.nats.revocations
    return any(key in revoked and revoked[key] >= claims.iat for key in (claims.sub, EVERY_USER))


def _check_source(grant: UserGrant, host: str) -> None:
    if not grant.src:
        return
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
        networks = [ipaddress.ip_network(it, strict=False) for it in grant.src if "/" in it]
    except ValueError:
        raise AuthenticationFailed("src of the user has what is no network") from None
    if len(networks) < len(grant.src):
        raise AuthenticationFailed("src of the user has what is no network")
    plain = getattr(address, "ipv4_mapped", None) or address
    if not any(plain in it for it in networks):
        raise AuthenticationFailed("the user may not come from this address")


def _end_of_times(grant: UserGrant, now_s: float) -> float | None:
    """Unix time at which the user has to go; None: it may stay. Raises AuthenticationFailed."""
    if not grant.times:
        return None
    now = _local(grant.times_location, now_s)
    ends = [end for span in grant.times if (end := _end_of(span, now)) is not None]
    if not ends:
        raise AuthenticationFailed("the user may not come at this time of the day")
    return max(ends).timestamp()


def _local(place: str, now_s: float) -> datetime:
    """By the clock of ``place``, else by this machine's. Raises AuthenticationFailed."""
    if not place or place == "Local":
        return datetime.fromtimestamp(now_s).astimezone()
    try:
        return datetime.fromtimestamp(now_s, ZoneInfo(place))
    except (KeyError, ValueError, OSError):
        raise AuthenticationFailed("times_location of the user is not known here") from None


def _end_of(span: TimeSpan, now: datetime) -> datetime | None:
    """None: now is not in it."""
    start, end = (
        datetime.combine(now.date(), _time_of_day(it), now.tzinfo) for it in (span.start, span.end)
    )
    if start < now < end:
        return end
    if start > end:
        if now < end:
            return end
        if start < now:
            return end + timedelta(days=1)
    return None


def _time_of_day(text: str) -> time:
    found = _TIME_OF_DAY.fullmatch(text)
    try:
        if found:
            return time(int(found[1]), int(found[2]), int(found[3]))
    except ValueError:
        pass
    raise AuthenticationFailed("times of the user has what is no time of the day")


def _least(*limits: int) -> int | None:
    """Negative numbers: without a limit."""
    return min((it for it in limits if it >= 0), default=None)


def _filled(template: Template, claims: UserClaims, account: AccountClaims) -> UserGrant:
    """The template with what is known of the user in place of ``{{name()}}`` and such. A list of
    allowed subjects of which nothing is left allows nothing. Raises AuthenticationFailed.
    """

    def filled(lists: SubjectLists) -> SubjectLists:
        allow = _expanded(lists.allow, claims, account, is_strict=False)
        deny = _expanded(lists.deny, claims, account, is_strict=True)
        if lists.allow and not allow:
            deny = (*(deny or ()), ">")
        return SubjectLists.model_construct(allow=allow, deny=deny)

    return template.model_copy(update={"pub": filled(template.pub), "sub": filled(template.sub)})


def _expanded(
    subjects: Texts | None, claims: UserClaims, account: AccountClaims, *, is_strict: bool
) -> Texts | None:
    """``is_strict``: to leave one out would be to allow it."""
    if not subjects or not any(map(_PLACEHOLDER.search, subjects)):
        return subjects
    expanded: list[str] = []
    for subject in subjects:
        names = _PLACEHOLDER.findall(subject)
        values = [_values(it.strip(), claims, account) for it in names]
        count = 1
        for each in values:
            count *= len(each)
        if len(expanded) + count > EXPANSIONS_MAX:
            raise AuthenticationFailed("a template of the account makes too many subjects")
        made = [_put_in(subject, each) for each in product(*values)]
        good = [it for it in made if not names or _is_subject(it)]
        if is_strict and (len(good) < len(made) or not made):
            raise AuthenticationFailed("a template of the account makes what is no subject")
        expanded += good
    return tuple(expanded)


def _values(operation: str, claims: UserClaims, account: AccountClaims) -> list[str]:
    fixed: Mapping[str, Callable[[], str]] = {
        "name()": lambda: claims.name,
        "subject()": lambda: claims.sub,
        "account-name()": lambda: account.name,
        "account-subject()": lambda: claims.nats.issuer_account,
    }
    if found := fixed.get(operation.lower()):
        return [found()]
    tag = _TAG.fullmatch(operation)
    if tag is None:
        raise AuthenticationFailed(f"a template of the account has {operation[:40]!r}")
    tags = account.nats.tags if tag[1] else claims.nats.tags
    prefix = f"{tag[2].lower()}:"
    return [it.removeprefix(prefix) for it in tags if it.startswith(prefix)]


def _put_in(subject: str, values: tuple[str, ...]) -> str:
    rest = iter(values)
    return _PLACEHOLDER.sub(lambda _: next(rest), subject)


def _is_subject(entry: str) -> bool:
    try:
        SubjectList([entry])
    except InvalidSubject:
        return False
    return True


C = TypeVar("C", UserClaims, AccountClaims, OperatorClaims)

_ISSUERS: Final[Mapping[str, NkeyKind]] = {
    "user": NkeyKind.ACCOUNT,
    "account": NkeyKind.OPERATOR,
    "operator": NkeyKind.OPERATOR,
}
_SUBJECTS: Final[Mapping[str, NkeyKind]] = {
    "user": NkeyKind.USER,
    "account": NkeyKind.ACCOUNT,
    "operator": NkeyKind.OPERATOR,
}


def _read(token: str, model: type[C], kind: str, chars_max: int) -> C:
    malformed = AuthenticationFailed(f"not the JWT of a NATS {kind}")
    parts = token.split(".")
    if len(token) > chars_max or len(parts) != 3:
        raise malformed
    try:
        header, payload, signature = map(decoded_base64url, parts)
        head = _Header.model_validate_json(header)
        claims = model.model_validate_json(payload)
    except (ValueError, ValidationError, RecursionError):
        raise malformed from None
    if head.typ.upper() != "JWT" or head.alg.lower() != "ed25519-nkey":
        raise AuthenticationFailed(f"the {kind} JWT is not signed by ed25519-nkey")
    if claims.type or claims.nats.version != 2:
        raise AuthenticationFailed(f"the {kind} JWT is not of version 2")
    if claims.nats.type != kind or not is_public_key(claims.sub, _SUBJECTS[kind]):
        raise malformed
    signed = token[: len(token) - len(parts[2]) - 1].encode()
    if not is_signed_by(claims.iss, _ISSUERS[kind], signed, signature):
        raise AuthenticationFailed(f"the {kind} JWT is not signed by its issuer")
    return claims
