"""What the handlers of requests share: one object a node."""

import ssl
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from streamlog.authn.session import ANONYMOUS_SESSION, Session
from streamlog.authz.audit import Audit
from streamlog.authz.service import AuthorizationService
from streamlog.config import KafkaSection, NodeSection, Settings
from streamlog.control.control import Control
from streamlog.control.operation import Caller
from streamlog.control.service import ControlService
from streamlog.errors import NoController
from streamlog.groups.service import GroupService
from streamlog.kafka.auth.authenticator import Authenticator
from streamlog.kafka.cluster_view import ClusterView
from streamlog.kafka.fetch.session_cache import SessionCache
from streamlog.kafka.net.channel import RequestWait
from streamlog.kafka.producer_ids import ProducerIds
from streamlog.kafka.quotas import ClientQuotas
from streamlog.kafka.transaction_partitions import TransactionPartitions
from streamlog.metrics import NodeMetrics
from streamlog.shares.share_service import ShareService
from streamlog.transactions.service import TransactionService


def _nothing_ends(_key: Hashable, _call: Callable[[], None]) -> None:
    """There is no connection."""


class Requester(NamedTuple):
    """Who has sent a request, and how long it may wait for the answer."""

    client_id: str
    host: str
    poll: RequestWait
    """Ends where the client is gone, or the node stops."""
    at_end: Callable[[Hashable, Callable[[], None]], None] = _nothing_ends
    """``at_end(key, call)``: ``call`` is called when the connection is over, once for each key."""


@dataclass(frozen=True, kw_only=True)
class Context(ClusterView):
    """What a handler may use."""

    settings: KafkaSection
    metrics: NodeMetrics
    groups: GroupService
    transactions: TransactionService | None = None
    """None: clients have no transactions."""
    transaction_partitions: TransactionPartitions | None = None
    """The coordinators of all transactional ids; None: there are no transactions."""
    shares: ShareService | None = None
    """Share partitions that this node leads; None: it delivers nothing to share groups."""
    producer_ids: ProducerIds = field(default_factory=ProducerIds)
    node_settings: Settings = field(
        default_factory=lambda: Settings.model_construct(node=NodeSection(data_dir=Path()))
    )
    """All of the node's: to be shown, and what holds for streams that say nothing themselves."""
    fetch_sessions: SessionCache = field(default_factory=SessionCache)
    throttles: ClientQuotas = field(default_factory=ClientQuotas)
    tls: Callable[[], ssl.SSLContext | None] = lambda: None
    """For those who come next; None: in the clear."""
    authenticator: Authenticator | None = None
    """None: no client can prove who it is."""
    session: Session = ANONYMOUS_SESSION
    """Who asks: each connection has a context of its own, which differs in this from others."""
    authorization: AuthorizationService | None = None
    """The rules in force; None: there are none."""
    audit: Audit = field(default_factory=Audit)
    control_service: ControlService | None = None
    """None: nothing is administered here."""

    @property
    def control(self) -> Control:
        """The operations for the owner of this session. Raises NoController where there are none."""
        if self.control_service is None:
            raise NoController("this node is about to start, or to stop")
        return Control(self.control_service, Caller(self.session, self.access, by="Kafka"))

    @property
    def authentication_on(self) -> bool:
        """Clients and nodes have to prove who they are."""
        return self.authenticator is not None and self.authenticator.is_demanded

    @property
    def security_optional(self) -> bool:
        """TLS and logins are taken, and not demanded."""
        return self.node_settings.security.permissive
