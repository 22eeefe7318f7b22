"""Who this node is to others, and how it finds out who they are."""

import logging
from collections.abc import Callable

from streamlog.client.security import ClientLogin, Security, secret_in
from streamlog.config import Settings
from streamlog.errors import ConfigError
from streamlog.kafka.auth.authenticator import Authenticator
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.tls.certificates import KAFKA, Certificates

logger = logging.getLogger(__name__)


def build_authenticator(
    settings: Settings, image: Callable[[], MetadataImage], certificates: Certificates
) -> Authenticator | None:
    """None where nobody can prove who they are. Reads files. Raises ConfigError."""
    if not settings.authentication_known:
        return None
    sasl = settings.sasl
    by_certificate = settings.tls.client_auth != "none"
    if len(settings.cluster.voters) > 1 and sasl.node_user is None and not by_certificate:
        problem = "is missing, and nodes show no certificates: none would let in another one"
        remedy = "name the user, with sasl.node_password_file, or set tls.client_auth"
        raise ConfigError("sasl.node_user", problem, remedy)
    return Authenticator.load(
        sasl,
        image,
        lambda: _own_subject(certificates),
        is_demanded=settings.authentication_on,
    )


def _own_subject(certificates: Certificates) -> str | None:
    """Of what the socket API shows, which is shown to other nodes as well."""
    own = certificates.shown.get(KAFKA)
    return own.subject if own is not None else None


def warn_of_no_secret(settings: Settings) -> None:
    """Certificates are shown on the socket API alone: over NATS nodes prove by a secret that they
    are nodes.
    """
    has_secret = settings.authorization.node_secret_file or settings.sasl.node_password_file
    if settings.authentication_on and len(settings.cluster.voters) > 1 and has_secret is None:
        logger.warning("nodes believe nothing of each other over NATS: they share no secret")


def to_nodes(settings: Settings, certificates: Certificates) -> Security:
    """How this node goes to other nodes."""
    return Security(
        tls=certificates.outgoing,
        login=node_login(settings),
        permissive=settings.security.permissive,
    )


def node_login(settings: Settings) -> ClientLogin | None:
    """As whom this node goes to other nodes; None: with its certificate, or as nobody."""
    sasl = settings.sasl
    if sasl.node_user is None or sasl.node_password_file is None:
        return None
    secret = secret_in(sasl.node_password_file, "sasl.node_password_file")
    return ClientLogin(sasl.node_mechanism, sasl.node_user, secret)
