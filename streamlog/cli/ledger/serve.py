"""An ordering node, and its HTTP port: closed as a node's own is, by options instead of settings."""

import logging
import re
import socket
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from streamlog.app.listen_check import INSECURE
from streamlog.cli.ledger.options import KeyFile, limits_of, read_seed
from streamlog.cli.options import options as o
from streamlog.cli.options.connection_options import cluster_at
from streamlog.cli.options.nats_options import nats_settings
from streamlog.errors import ConfigError, InvalidChannelConfig

if TYPE_CHECKING:
    from streamlog.config import ClientAuth, NatsSection
    from streamlog.ledger.core import channel_follower
    from streamlog.ledger.node import NodeSettings
    from streamlog.ledger.site import HttpListener
    from streamlog.ledger.storage.folder import ChannelFile
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
    Path | None, typer.Option(help="CA of the certificates that clients must present.")
]
HttpInsecure = Annotated[
    bool,
    typer.Option(
        help="Accept clients without a login on an address that other machines can reach."
    ),
]
_REMEDY = (
    "give --http-tls-cert and --http-tls-key, with --http-token-file or --http-client-ca, or listen"
    " on 127.0.0.1, or allow it (--http-insecure)"
)


def http_listener(
    address: tuple[str, int | None],
    tokens: Path | None,
    files: tuple[Path | None, Path | None, Path | None],
    insecure: bool,
) -> "HttpListener | None":
    """``files``: certificate, key, CA of clients. None where nothing is served. Raises ConfigError.

    Warns where it is open to other machines, and the settings allow that.
    """
    from streamlog.app.listen_check import is_local
    from streamlog.config import SaslSection
    from streamlog.config.token_file import Tokens
    from streamlog.kafka.auth.login_rate_limit import LoginRateLimit
    from streamlog.ledger.site import HttpListener

    host, port = address
    if port is None:
        if tokens or any(files):
            raise ConfigError("--http-port", "is missing", "name the port that is to be guarded")
        return None
    context = _context(*files)
    asks = context is not None and (tokens is not None or files[2] is not None)
    if not asks and not is_local(host):
        if not insecure:
            problem = (
                f"{host} can be reached from other machines, and clients need not authenticate"
            )
            raise ConfigError("--http-host", problem, _REMEDY)
        extra = {"listener": "http", "host": host}
        logger.warning(INSECURE, extra=extra)
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
    from streamlog.tls.contexts import File, KeyPair, Trust, server_context
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


_NODE_NAME = re.compile(r"[A-Za-z0-9_@-]+(\.[A-Za-z0-9_@-]+)*")
_JOIN = re.compile(r"([0-9]{1,18}):([0-9a-fA-F]{64})")
_NEW = "Of a new channel; one that is there keeps its own (`ledger configure`)."

JoinPoint = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBER:HASH",
        help="Of --channel: a block that you trust; take no history that does not lead to it.",
    ),
]
Peers = Annotated[
    list[str] | None,
    typer.Option(metavar="NODE", help="Follow it beside the consenters; may be repeated."),
]


def serve(
    directory: Annotated[Path, typer.Option("--dir", help="Where the blocks are kept.")],
    channel: Annotated[
        str | None,
        typer.Option(help="Serve it too; created where it is new. Without: those in --dir."),
    ] = None,
    stream: Annotated[
        str | None,
        typer.Option(help="The channel's; created where it is missing. Default: its name."),
    ] = None,
    node: Annotated[
        str | None,
        typer.Option(help="This node's name, its own in the channel. Default: the host's."),
    ] = None,
    key: KeyFile = None,
    genesis: Annotated[
        Path | None,
        typer.Option(help=f"JSON: limits, administrators, writers, readers, consenters. {_NEW}"),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help=f"Records in a block. {_NEW}")] = None,
    batch_timeout_ms: Annotated[
        int | None, typer.Option(help="From a block's first record until it is cut as it is.")
    ] = None,
    preferred_max_bytes: Annotated[
        int | None, typer.Option(help="Of a block, unless one record alone is larger.")
    ] = None,
    absolute_max_bytes: Annotated[
        int | None, typer.Option(help="Of a record; larger ones are refused.")
    ] = None,
    servers: o.Servers = o.SERVERS,
    nats: o.NatsUrl = o.NATS_URL,
    creds: o.Credentials = None,
    join: JoinPoint = None,
    peer: Peers = None,
    http_port: HttpPort = None,
    http_host: HttpHost = "127.0.0.1",
    http_token_file: HttpTokens = None,
    http_tls_cert: HttpCert = None,
    http_tls_key: HttpKey = None,
    http_client_ca: HttpClientCa = None,
    http_insecure: HttpInsecure = False,
    log_format: Annotated[
        Literal["json", "console"], typer.Option(help="Of what it says on standard error.")
    ] = "json",
) -> None:
    """Run one ordering node until it is told to stop (Ctrl-C, SIGTERM)."""
    from streamlog.app.logs import configure_logs
    from streamlog.ledger.run import equipped, run_node

    limits = limits_of(batch_size, batch_timeout_ms, preferred_max_bytes, absolute_max_bytes)
    wanted = _wanted(channel, stream, genesis, limits)
    settings = _settings(directory, servers, nats_settings(nats, creds), node, key)
    configure_logs(log_format, "info")
    files = (http_tls_cert, http_tls_key, http_client_ca)
    http = http_listener((http_host, http_port), http_token_file, files, http_insecure)
    ready = equipped(settings, peers=peer or (), joins=_joins(channel, join), http=http)
    run_node(ready.node, *wanted, beside=ready.beside)


def _settings(
    directory: Path, servers: str, nats: "NatsSection", node: str | None, key: Path | None
) -> "NodeSettings":
    """Raises ConfigError."""
    from streamlog.client.addresses import parse_addresses
    from streamlog.ledger.core.signing import Signer
    from streamlog.ledger.node import NodeSettings

    name = _node_name(node or socket.gethostname())
    parse_addresses(servers)
    return NodeSettings(
        directory=directory,
        servers=servers,
        nats=nats,
        node=name,
        signer=None if key is None else Signer(name, read_seed(key)),
        connect=cluster_at,
    )


def _node_name(name: str) -> str:
    """Raises ConfigError."""
    if not _NODE_NAME.fullmatch(name):
        remedy = "use letters, digits, -, _, @ and single dots"
        raise ConfigError("--node", f"{name!r} cannot be a node's name", remedy)
    return name


def _joins(channel: str | None, join: str | None) -> "dict[str, channel_follower.JoinPoint]":
    """Raises ConfigError."""
    from streamlog.ledger.core import channel_follower

    if join is None:
        return {}
    if channel is None:
        raise ConfigError("--join", "it does not say of which channel", "give --channel as well")
    found = _JOIN.fullmatch(join)
    if not found:
        remedy = "write NUMBER:HASH, as `streamlog ledger deliver` shows them"
        raise ConfigError("--join", f"{join!r} is no block", remedy)
    return {channel: channel_follower.JoinPoint(int(found[1]), bytes.fromhex(found[2]))}


def _wanted(
    channel: str | None, stream: str | None, genesis: Path | None, limits: dict[str, int]
) -> "list[ChannelFile]":
    """Raises ConfigError."""
    import json

    from streamlog.ledger.core.channel_config import parse_config
    from streamlog.ledger.storage.folder import ChannelFile

    if channel is None:
        if stream or genesis or limits:
            problem = "options of a new channel are given, and no channel"
            raise ConfigError("--channel", problem, "name it")
        return []
    try:
        fields = json.loads(genesis.read_bytes()) if genesis else {}
        fields = {**fields, "channel": channel, "sequence": 0}
        fields["limits"] = {**fields.get("limits", {}), **limits}
        config = parse_config(json.dumps(fields).encode())
    except OSError as error:
        remedy = "name a file that can be read"
        raise ConfigError("--genesis", f"{genesis}: {error.strerror}", remedy) from None
    except (ValueError, TypeError):
        remedy = "write what `streamlog ledger info` shows as config"
        raise ConfigError("--genesis", f"{genesis} is no JSON object", remedy) from None
    except InvalidChannelConfig as error:
        remedy = "see `streamlog ledger serve --help`"
        raise ConfigError("--channel", f"{channel!r} cannot be so: {error}", remedy) from None
    has_wishes = bool(genesis or limits)
    return [
        ChannelFile(
            channel=channel, stream=stream or channel, genesis=config if has_wishes else None
        )
    ]
