import ssl
from collections.abc import Callable


def following(current: Callable[[], ssl.SSLContext | None]) -> ssl.SSLContext | None:
    """A context for a server that is given one for good: whoever comes gets what is current then.

    The one it is given stays in charge of versions and ciphers; certificate, key and the CAs of
    clients are the current one's (``SSL_set_SSL_CTX``, in the callback for server names, which is
    called without a name, too).
    """
    first = current()
    if first is None:
        return None

    def switch(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        newest = current()
        if newest is not None and newest is not first:
            connection.context = newest

    first.sni_callback = switch
    return first
