"""What a start would refuse, in the settings and in the files that they name: all of it at once.

A start ends with the first of these. ``streamlog config check`` and ``doctor`` tell of all.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from streamlog.acl.rules import RuleBook
from streamlog.app.listen_check import (
    exposed,
    exposed_listeners,
    nats_listen_address,
    useless_permission,
)
from streamlog.app.security import NodeSecurity, missing_logins
from streamlog.authn.principal_mapping import PrincipalMapping
from streamlog.authz.rule_file import read_rules
from streamlog.client.security import secret_in
from streamlog.config import (
    ClientAuth,
    NatsListenAuthSection,
    SecretFile,
    Settings,
    check_folders,
    mistakes_of,
)
from streamlog.errors import ConfigError
from streamlog.ingest.nats.options import NatsOptions
from streamlog.kafka.auth.authenticator import token_keys_of
from streamlog.log.encryption.key_source import key_ring
from streamlog.metadata.nodes.bootstrap_users import read_bootstrap_users
from streamlog.metadata.quorum.voter_sets import configured_voters
from streamlog.metrics import NodeMetrics
from streamlog.tls.certificates import Certificates

PROGRAM: Final = "command:"
"""A key that a program prints: a check runs none."""


def refusals(settings: Settings) -> list[ConfigError]:
    """Opens no port, writes nothing, and runs no program. Blocking."""
    found = [
        *mistakes_of(settings),
        *exposed_listeners(settings),
        *useless_permission(settings),
        *missing_logins(settings),
    ]
    if settings.nats_listen.port is not None:
        port = settings.nats_listen
        found += nats_listen_refusals(port.host, port, settings.nats_client_auth, settings)
    for check in _checks(settings):
        try:
            check()
        except ConfigError as error:
            found.append(error)
    return list({str(error): error for error in found}.values())


def nats_listen_refusals(
    host: str, section: NatsListenAuthSection, client_auth: ClientAuth, settings: Settings
) -> Iterator[ConfigError]:
    """Of the NATS listener, whose clients show certificates as ``client_auth`` says."""
    yield from exposed((nats_listen_address(host, section, client_auth, settings),))
    try:
        NodeSecurity(settings, RuleBook, None, NodeMetrics()).port_authenticator(
            section, client_auth
        )
    except ConfigError as error:
        yield error


def _checks(it: Settings) -> Iterator[Callable[[], object]]:
    """Each raises ConfigError."""
    yield partial(check_folders, it)
    if it.cluster.voters:
        yield partial(configured_voters, it.cluster.voters)
    yield partial(NatsOptions, it.nats)
    yield partial(Certificates, it)
    yield partial(PrincipalMapping, it.sasl.principal_mapping_rules)
    yield partial(token_keys_of, it.sasl)
    if it.sasl.node_password_file is not None:
        yield partial(secret_in, it.sasl.node_password_file, "sasl.node_password_file")
    if it.sasl.bootstrap_file is not None:
        yield partial(read_bootstrap_users, it.sasl.bootstrap_file)
    if it.authorization.rules_file is not None:
        yield partial(read_rules, it.authorization.rules_file)
    if it.http.token_file is not None:
        yield SecretFile(it.http.token_file, key="http.token_file", noun="token").check
    for name, source in it.encryption.keys.items():
        if not source.startswith(PROGRAM):
            yield partial(key_ring, {name: source}, name)
