"""The link to NATS as a leafnode of the user's nats-servers."""

from collections.abc import Mapping
from itertools import count
from typing import Any, Final
from urllib.parse import urlsplit

from streamlog import __version__
from streamlog.config import NatsSection
from streamlog.ingest.nats.options import NatsOptions
from streamlog.nats.links import Link, LinkAddress
from streamlog.nats.port import NATS_VERSION
from streamlog.nats.router import Router
from streamlog.nats.sockets import Sockets, TlsFilter

LEAF_PORT: Final = 7422


class LeafLink(Link):
    """Calls the servers in turn. Answers that no subscription is known for go over it, too."""

    def __init__(
        self,
        nats: NatsSection,
        router: Router,
        sockets: Sockets,
        *,
        node_id: int,
        cluster_id: str,
        payload_bytes_max: int,
    ) -> None:
        """Raises ConfigError."""
        self._options = NatsOptions(nats)
        self._domain = nats.domain
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._attempts = count()
        super().__init__(
            "NATS",
            router,
            sockets,
            place=self._next_server,
            connect=self._introduction,
            tls=self._tls_to,
            tls_first=nats.tls_first,
            payload_bytes_max=payload_bytes_max,
            retry_s=self._options.reconnect_wait_s,
            retry_s_max=self._options.refused_wait_max_s,
            changed=lambda: self._set_fallback(router),
        )

    def _set_fallback(self, router: Router) -> None:
        router.fallback = self.connection

    async def _next_server(self) -> LinkAddress:
        servers = self._options.servers
        parts = urlsplit(servers[next(self._attempts) % len(servers)])
        return LinkAddress(parts.hostname or "", parts.port or LEAF_PORT)

    def _introduction(self, _: LinkAddress, info: Mapping[str, Any]) -> Mapping[str, Any]:
        """Raises ConfigError for a login that cannot be read."""
        return {
            "version": NATS_VERSION,
            "server_id": f"streamlog-{self._cluster_id}-{self._node_id}",
            "name": f"streamlog {__version__} node {self._node_id}",
            "cluster": f"streamlog-{self._cluster_id}",
            "domain": self._domain,
            "headers": True,
            "jetstream": True,
            "protocol": 1,
            "compress_mode": "not supported",
            **self._options.login.fields(str(info.get("nonce", ""))),
        }

    def _tls_to(self, place: LinkAddress, info: Mapping[str, Any]) -> TlsFilter | None:
        """Raises ConfigError."""
        tls = self._options.tls
        if not (tls.required or tls.first or info.get("tls_required")):
            return None
        return TlsFilter(tls.context(), server_name=tls.server_name or place.host)
