"""The HTTP port of an ordering node: closed as a node's own is, by options instead of settings."""

import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamlog.errors import ConfigError

if TYPE_CHECKING:
    from streamlog.ledger.site import HttpListener
    from streamlog.sections import ClientAuth
    from streamlog.tls.watched_context import WatchedContext

logger = logging.getLogger(__name__)

HttpPort = Annotated[
    int | None, typer.Option(help="Serve /metrics and /readyz there; 0: a free one.")
]
HttpHost = Annotated[str, typer.Option(help="The address of that port.")]
HttpTokens = Annotated[
    Path | None,
    typer.Option(help="Tokens, one a line, 16 or more characters: who reads metrics has one."),
]
HttpCert = Annotated[Path | None, typer.Option(help="Serve that port by TLS, with this.")]
HttpKey = Annotated[Path | None, typer.Option(help="The certificate's key.")]
HttpClientCa = Annotated[
    Path | None, typer.Option(help="Who comes there has to show a certificate of this CA.")
]
HttpInsecure = Annotated[
    bool, typer.Option(help="Let in everybody although others can reach that address.")
]
_REMEDY = (
    "give --http-tls-cert and --http-tls-key, with --http-token-file or --http-client-ca, or listen"
    " on 127.0.0.1, or say that it is meant (--http-insecure)"
)


def http_listener(
    address: tuple[str, int | None],
    tokens: Path | None,
    files: tuple[Path | None, Path | None, Path | None],
    insecure: bool,
) -> "HttpListener | None":
    """``files``: certificate, key, CA of clients. None where nothing is served. Raises ConfigError.

    Warns where it is open to whoever comes from elsewhere, and that is meant.
    """
    from streamlog.app.listen_check import is_local
    from streamlog.http.tokens import Tokens
    from streamlog.kafka.auth.login_rate_limit import LoginRateLimit
    from streamlog.ledger.site import HttpListener
    from streamlog.sections import SaslSection

    host, port = address
    if port is None:
        if tokens or any(files):
            raise ConfigError("--http-port", "is missing", "name the port that is to be guarded")
        return None
    context = _context(*files)
    asks = context is not None and (tokens is not None or files[2] is not None)
    if not asks and not is_local(host):
        if not insecure:
            problem = f"{host} can be reached by others, and nobody is asked who they are"
            raise ConfigError("--http-host", problem, _REMEDY)
        extra = {"listener": "http", "host": host}
        logger.warning("insecure: whoever reaches this address may do anything", extra=extra)
    sasl = SaslSection()  # as a node has it where nothing is set
    examine = partial(
        LoginRateLimit(sasl.failures_per_address_max).examine_slowly, delay_ms=sasl.failure_delay_ms
    )
    listener = HttpListener(
        host,
        port,
        None if tokens is None else Tokens(tokens, key="--http-token-file", examine=examine),
        (lambda: None) if context is None else context.current,
    )
    listener.check()
    return listener


def _context(
    cert: Path | None, key: Path | None, client_ca: Path | None
) -> "WatchedContext | None":
    from streamlog.tls.files import File, KeyPair, Trust, server_context
    from streamlog.tls.watched_context import WatchedContext

    if cert is None or key is None:
        if cert or key or client_ca:
            problem = "a certificate and its key are needed, or neither"
            raise ConfigError("--http-tls-cert", problem, "name both")
        return None
    own = KeyPair(File("--http-tls-cert", cert), File("--http-tls-key", key))
    trust = Trust(None if client_ca is None else File("--http-client-ca", client_ca))
    auth: ClientAuth = "none" if client_ca is None else "required"
    return WatchedContext(
        (*(it.path for it in own.files), *(it.path for it in trust.files)),
        lambda: server_context(own, trust, auth),
    )
