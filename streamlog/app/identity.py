"""Who this node is to others, and how it finds out who they are."""

from collections.abc import Callable

from streamlog.client.login import Login, secret_in
from streamlog.config import Settings
from streamlog.errors import ConfigError
from streamlog.metadata.image import Image
from streamlog.server.authenticator import Authenticator


def build_authenticator(settings: Settings, image: Callable[[], Image]) -> Authenticator | None:
    """None where whoever comes is believed. Reads files. Raises ConfigError."""
    if not settings.authentication_on:
        return None
    sasl = settings.sasl
    if len(settings.cluster.voters) > 1 and sasl.node_user is None and not sasl.node_principals:
        problem = "is missing, and so is sasl.node_principals: no node would let in another one"
        remedy = "name the user, with sasl.node_password_file, or the certificates of the nodes"
        raise ConfigError("sasl.node_user", problem, remedy)
    return Authenticator.load(sasl, image)


def node_login(settings: Settings) -> Login | None:
    """As whom this node goes to other nodes; None: with its certificate, or as nobody."""
    sasl = settings.sasl
    if sasl.node_user is None or sasl.node_password_file is None:
        return None
    secret = secret_in(sasl.node_password_file, "sasl.node_password_file")
    return Login(sasl.node_mechanism, sasl.node_user, secret)
