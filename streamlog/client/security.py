"""What a connection to a node begins with, before anything is asked."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from streamlog.client.login import ClientLogin


def _in_the_clear() -> ssl.SSLContext | None:
    return None


@dataclass(frozen=True, slots=True)
class Security:
    """Asked anew for each connection: certificates and passwords change while a program runs."""

    tls: Callable[[], ssl.SSLContext | None] = _in_the_clear
    """None: in the clear."""
    login: ClientLogin | None = None
    """None: nobody says who they are, but for a certificate."""
    optional: bool = False
    """Go without either where the other side has it not; while it is turned on node by node."""


NO_SECURITY: Final = Security()
