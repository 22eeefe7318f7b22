"""Closed by default: who is not asked who they are gets no further than this machine."""

import ipaddress
import logging
import socket
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from streamlog.condition import Condition
from streamlog.config import ClientAuth, NatsListenAuthSection, Settings
from streamlog.errors import ConfigError
from streamlog.kafka.net.tls_channel import FRAME_BYTES_MAX
from streamlog.nats.auth.port_authenticator import asks_for_logins

logger = logging.getLogger(__name__)

PERMISSIVE: Final = Condition(
    "SL-0605",
    "permissive: any client may do anything",
    "remove security.permissive when all have moved; docs/runbooks/turn-on-security.md",
    meaning="security.permissive is set: clients without a login are let in.",
)
INSECURE: Final = Condition(
    "SL-0607",
    "insecure: any client that reaches this address may do anything",
    "turn on [sasl] or client certificates; docs/security.md",
    meaning="A listener can be reached from other machines and does not authenticate its "
    "clients, which the settings allow.",
)

REMEDY: Final = "require it (sasl.mechanisms, tls.client_auth), or listen on 127.0.0.1, or allow it"


class ListenAddress(NamedTuple):
    """A port that others can reach."""

    section: str
    host: str
    allowed: bool
    """Said to be meant."""
    authenticates: bool


def check_exposure(settings: Settings) -> None:
    """Raises ConfigError for an address that is open to every client; warns where the settings allow that."""
    for error in (*useless_permission(settings), *exposed_listeners(settings)):
        raise error
    if settings.security.permissive:
        logger.warning(PERMISSIVE)
    for address in filter(_is_open, listen_addresses(settings)):
        extra = {"listener": address.section, "host": address.host}
        logger.warning(INSECURE, extra=extra)


def exposed_listeners(settings: Settings) -> Iterator[ConfigError]:
    """Of each address that is open to every client, where the settings do not allow that."""
    yield from exposed(listen_addresses(settings))


def exposed(addresses: Iterable[ListenAddress]) -> Iterator[ConfigError]:
    for address in filter(_is_open, addresses):
        if not address.allowed:
            meant = "security.allow_unauthenticated"
            meant += " or http.allow_unauthenticated" if address.section == "http" else ""
            problem = f"{address.host} can be reached from other machines, and clients need not authenticate"
            yield ConfigError(f"{address.section}.host", problem, f"{REMEDY} ({meant} = true)")


def _is_open(address: ListenAddress) -> bool:
    return not address.authenticates and not is_local(address.host)


def useless_permission(settings: Settings) -> Iterator[ConfigError]:
    """Where there is nothing to be turned on, or it could not be told apart."""
    key = "security.permissive"
    if not settings.security.permissive:
        return
    has_tls = settings.tls.cert is not None and settings.kafka.tls is not False
    if not has_tls and not settings.authentication_known:
        problem = "is true, and neither TLS nor a login is set up"
        yield ConfigError(key, problem, "set them up (tls.cert, sasl.mechanisms), or remove it")
    if has_tls and settings.kafka.request_bytes_max >= FRAME_BYTES_MAX:
        problem = f"is true, and a frame of {FRAME_BYTES_MAX} bytes or more begins as TLS does"
        yield ConfigError(key, problem, "set kafka.request_bytes_max below that meanwhile")


def listen_addresses(settings: Settings) -> tuple[ListenAddress, ...]:
    """Of the socket API, of HTTP, and of the NATS port."""
    security, kafka, http = settings.security, settings.kafka, settings.http
    listed = (
        ListenAddress(
            "kafka", kafka.host, security.allow_unauthenticated, authenticates_clients(settings)
        ),
        ListenAddress(
            "http",
            http.host,
            security.allow_unauthenticated or http.allow_unauthenticated,
            authenticates_visitors(settings),
        ),
    )
    port = settings.nats_listen
    if port.port is None:
        return listed
    address = nats_listen_address(port.host, port, settings.nats_client_auth, settings)
    return (*listed, address)


def authenticates_clients(settings: Settings) -> bool:
    """Every client of the socket API has to prove who it is."""
    return settings.authentication_on


def authenticates_visitors(settings: Settings) -> bool:
    """The same for HTTP; a token or a password over the network wants TLS as well."""
    auth = settings.http.tls_client_auth or settings.tls.client_auth
    has_tls = bool(settings.http.tls_cert or settings.tls.cert) and settings.http.tls is not False
    has_secrets = settings.http.token_file is not None or settings.http.basic_auth
    return has_tls and (auth == "required" or has_secrets)


def nats_listen_address(
    host: str, section: NatsListenAuthSection, client_auth: ClientAuth, settings: Settings
) -> ListenAddress:
    """Of the NATS listener, whose clients show certificates as ``client_auth`` says. Passwords and
    tokens from other machines need TLS there, or a setting, so that each of them counts.
    """
    authenticates = not settings.security.permissive and (
        settings.authentication_known
        or client_auth == "required"
        or asks_for_logins(section, has_nkeys=bool(settings.authorization.nkeys))
    )
    allowed = settings.security.allow_unauthenticated
    return ListenAddress("nats_listen", host, allowed, authenticates)


def is_local(host: str) -> bool:
    """Only this machine can come there. What is no address at all is for the listener to tell."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(
            host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError):  # the latter of what cannot be a name, such as "."
        return True
    return all(ipaddress.ip_address(it[4][0]).is_loopback for it in found)
