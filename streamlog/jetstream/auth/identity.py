"""Who asks over NATS, and what they may do.

A request signed by a known key is carried out once, whichever node it comes to. Each node remembers
what it has seen, which says nothing of what others have. So each asks the controller, too, before
anything is done or told.
"""

import hashlib
import itertools
import json
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from streamlog.authn.principal import ANONYMOUS, Principal
from streamlog.authn.session import Session
from streamlog.authz.authority import Authority
from streamlog.authz.permissions import Permissions
from streamlog.authz.signature import KEY, NODE, NONCE, TIME, RequestVerifier, node_signature, sign
from streamlog.authz.visibility import Metadata
from streamlog.clock import wall_ms
from streamlog.config import AuthorizationSection, SecretFile, Settings
from streamlog.errors import AuthenticationFailed, InvalidRequest
from streamlog.jetstream.connection import Request
from streamlog.metadata.commands import SpendNonce

REQUEST_INFO: Final = "Nats-Request-Info"
"""Set by nats-server where a request comes through a service import that is shared."""
NATS_KIND: Final = "Nats"
"""Of principals whom nats-server reports. They are no users of this cluster: an account of NATS may
be called as one of them is."""
NAME_CHARS_MAX: Final = 250
STRETCH_MEMORY_BYTES: Final = 64 * 1024 * 1024


class RequestIdentity(NamedTuple):
    """Who has sent one request; ``access`` None: it may do everything."""

    session: Session
    access: Permissions | None
    counts_once: bool = False
    """It is signed by a key that some rule or setting names."""


class RequestIdentities:
    """Looks at the headers of requests."""

    def __init__(
        self,
        authority: Authority,
        settings: AuthorizationSection,
        node_secrets: Callable[[], Sequence[bytes]] = tuple,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self.window_ms = settings.signature_window_ms
        """How old, or how far ahead, a signed request may be."""
        self._authority = authority
        self._names = settings.nkeys
        self._request_info = settings.nats_request_info
        self._node_secrets = node_secrets
        self._now_ms = now_ms
        self._verifier = RequestVerifier(
            settings.signature_window_ms,
            node_secrets,
            now_ms,
            checks_reply=settings.check_reply_subject,
        )
        self._sender = secrets.token_urlsafe(18)
        """This process, among nodes. Another one of the same node counts from the start."""
        self._numbers = itertools.count()

    def of_client(self, request: Request) -> RequestIdentity:
        """Raises AuthenticationFailed for a wrong signature; without any the client is not known."""
        headers = request.headers
        session, counts_once = Session(), False
        if self._authority.enforced:
            try:
                session = Session(self._principal(request, headers))
            except AuthenticationFailed as error:
                self._authority.audit.not_authenticated(session, str(error), by="NATS")
                raise
            counts_once = KEY in headers and self._is_known(headers[KEY])
        return RequestIdentity(session, self._authority.access_of(session), counts_once)

    def check_node(self, request: Request) -> None:
        """Raises AuthenticationFailed for what no node has sent."""
        if self._authority.enforced:
            try:
                self._verifier.node(
                    request.subject, request.data, request.headers, reply=request.reply
                )
            except AuthenticationFailed as error:
                self._authority.audit.not_authenticated(Session(), str(error), by="NATS, as a node")
                raise

    def as_node(self, subject: str, payload: bytes, reply: str) -> dict[str, str] | None:
        """Headers of what this node asks another one; None where they are not wanted."""
        found = self._node_secrets()  # others may demand it before this node does
        if not found:
            return None
        nonce = f"{self._sender}.{next(self._numbers)}"
        signature, now_ms = node_signature(found[0]), self._now_ms()
        return sign(
            {NODE: "1"}, subject, payload, signature, now_ms=now_ms, reply=reply, nonce=nonce
        )

    def _principal(self, request: Request, headers: Mapping[str, str]) -> Principal:
        if KEY in headers:
            key = self._verifier.user(
                request.subject, request.data, headers, self._is_known, reply=request.reply
            )
            return Principal.user(self._names.get(key, key))
        if self._request_info and REQUEST_INFO in headers:
            return Principal(NATS_KIND, _reported(headers[REQUEST_INFO]))
        return ANONYMOUS

    def _is_known(self, key: str) -> bool:
        return key in self._names or self._authority.names(str(Principal.user(key)))


def _reported(text: str) -> str:
    """``<account>/<user>``, as far as NATS tells. Raises AuthenticationFailed."""
    try:
        info = json.loads(text)
        parts = [_without_slash(info["acc"]), info.get("user", "")]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise AuthenticationFailed(f"{REQUEST_INFO} does not tell an account") from None
    name = "/".join(part for part in parts if isinstance(part, str) and part)
    if not name or len(name) > NAME_CHARS_MAX:
        raise AuthenticationFailed(f"{REQUEST_INFO} does not tell an account")
    return name


def _without_slash(account: str) -> str:
    """So that account ``a/b`` is not user ``b`` of account ``a``."""
    return account.replace("%", "%25").replace("/", "%2F")


def node_secrets_of(settings: Settings) -> Callable[[], Sequence[bytes]]:
    """Of the file that all nodes share, read at each use: what is put in its place counts at once.

    Lines, the first of which is signed with; with ``authorization.node_secret_file`` unset keys made of
    those of ``sasl.node_password_file``. A client that may subscribe to what nodes say over NATS has
    signatures to guess a password by, so that each guess is made as slow as one of scrypt is.
    """
    found = _node_secrets(settings)
    if found is None:
        return tuple
    if settings.authorization.node_secret_file is not None:
        return found.secrets
    return lambda: tuple(map(stretched, found.secrets()))


@lru_cache(maxsize=16)
def stretched(password: bytes) -> bytes:
    """Once for each password: it takes a tenth of a second."""
    return hashlib.scrypt(
        password,
        salt=b"streamlog: what nodes ask of each other over NATS",
        n=2**15,
        r=8,
        p=1,
        maxmem=STRETCH_MEMORY_BYTES,
        dklen=32,
    )


def check_node_secrets(settings: Settings) -> None:
    """Raises ConfigError for a file that cannot be used."""
    found = _node_secrets(settings)
    if found is not None:
        found.check()
    node_secrets_of(settings)()  # so that no request waits for it later


def _node_secrets(settings: Settings) -> SecretFile | None:
    own, passwords = settings.authorization.node_secret_file, settings.sasl.node_password_file
    if own is not None:
        return SecretFile(own, key="authorization.node_secret_file", noun="secret")
    if passwords is not None:  # an operator may have chosen them to be short
        return SecretFile(passwords, key="sasl.node_password_file", noun="password", bytes_min=1)
    return None


logger = logging.getLogger(__name__)


class ReplayGuard:
    """Of requests whose signatures were found right."""

    def __init__(self, metadata: Metadata, window_ms: int) -> None:
        self._metadata = metadata
        self._window_ms = window_ms

    async def check(self, request: Request) -> None:
        """Raises AuthenticationFailed, and what asking the controller does."""
        headers = request.headers
        if KEY not in headers:
            return
        command = SpendNonce(
            signer=headers[KEY],
            nonce=headers[NONCE],
            signed_ms=int(headers[TIME]),
            window_ms=self._window_ms,
        )
        try:
            granted = await self._metadata.request(command)
        except InvalidRequest as error:  # a controller of before it knew that
            logger.debug("signed request not told to the controller", extra={"error": str(error)})
            return
        if refusal := str(granted.result["refusal"]):
            raise AuthenticationFailed(refusal)
