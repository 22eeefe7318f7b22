"""What the console is told about this node; made when it is asked for."""

import ipaddress
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from streamlog import __version__
from streamlog.app.loop_lag import LoopLag
from streamlog.clock import wall_ms
from streamlog.config import HttpSection, Settings
from streamlog.errors import EncryptionKeyMissing
from streamlog.groups.service import GroupService
from streamlog.http.console.cluster_snapshot import ClusterSnapshot, CoordinatedGroup
from streamlog.http.endpoints import Readiness
from streamlog.ingest.service import IngestService
from streamlog.jetstream.api import ManagementApi
from streamlog.metadata.nodes.node_condition import Trouble
from streamlog.metadata.service import MetadataService
from streamlog.model import NodeId, TopicPartition
from streamlog.partition.replica_manager import ReplicaManager

if TYPE_CHECKING:
    from streamlog.http.console.console import Console

FRESH_MS: Final = 500
"""Nothing is looked at more often."""


GROUPS_FRESH_MS: Final = 2_000


class _GroupSurvey(NamedTuple):
    """The groups that this node coordinates."""

    at_ms: int
    found: list[CoordinatedGroup]
    hidden: int


class _Survey(NamedTuple):
    """What takes such a look."""

    at_ms: int
    failures: dict[TopicPartition, str]
    keyless: frozenset[TopicPartition]
    damaged: tuple[TopicPartition, ...]
    groups: _GroupSurvey


class NodeStatus:
    """Asks the node's services; holds the last survey of its partitions and groups."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        settings: Settings,
        metadata: MetadataService,
        registry: ReplicaManager,
        groups: GroupService,
        source: IngestService,
        admin: ManagementApi,
        readiness: Readiness,
        troubles: Callable[[], Sequence[Trouble]],
        loop_lag: LoopLag,
        is_guarded: bool = False,
    ) -> None:
        """``is_guarded``: clients log in, and their right to read is checked."""
        self._is_guarded = is_guarded
        self._node_id = node_id
        self._http = settings.http
        self._metadata = metadata
        self._registry = registry
        self._groups = groups
        self._source, self._admin = source, admin
        self._readiness = readiness
        self._troubles = troubles
        self._loop_lag = loop_lag
        none = _GroupSurvey(-GROUPS_FRESH_MS, [], 0)
        self._last = _Survey(-FRESH_MS, {}, frozenset(), (), none)

    def moment(self, page: "Console") -> ClusterSnapshot:
        """With what the last survey found."""
        metadata, now_ms = self._metadata, wall_ms()
        is_open, survey = metadata.is_open, self._last
        complaint = self._source.complaint or self._admin.complaint
        return ClusterSnapshot(
            node_id=self._node_id,
            version=__version__,
            now_ms=now_ms,
            image=metadata.image,
            role=metadata.quorum_role.value if is_open else "starting",
            quorum_epoch=metadata.quorum_epoch if is_open else -1,
            controller=metadata.controller_id if is_open else None,
            voters=tuple(sorted(metadata.voters.ids)) if is_open else (),
            lease_held=metadata.lease.held,
            reasons=self._readiness.reasons(),
            nats_remedy="" if complaint is None else complaint.remedy,
            loop_lag_s=self._loop_lag.seconds,
            troubles=self._troubles(),
            failures=survey.failures,
            keyless=survey.keyless,
            damaged=survey.damaged,
            answers=page.silence.answers,
            healing=metadata.healing_status,
            groups=_each_once(survey.groups.found, page.groups.groups),
            groups_hidden=survey.groups.hidden + page.groups.hidden,
            transactions=page.transactions.known,
            tail_refused=why_no_tail(self._http, is_guarded=self._is_guarded),
            console_writes=self._http.console_writes,
        )

    async def survey(self) -> None:
        """Looks at partitions that are not well, and at groups, unless that was done a moment ago."""
        began_ms = time.monotonic_ns() // 1_000_000
        if began_ms - self._last.at_ms < FRESH_MS:
            return
        unopened = self._registry.unopened
        failures = {tp: str(error) for tp, error in unopened.items()}
        keyless = frozenset(
            tp for tp, error in unopened.items() if isinstance(error, EncryptionKeyMissing)
        )
        ailing = self._registry.ailing()
        failures |= {it.tp: str(it.failure) for it in ailing if it.failure is not None}
        damaged = tuple(it.tp for it in ailing if it.is_damaged)
        groups = self._last.groups
        if began_ms - groups.at_ms >= GROUPS_FRESH_MS:
            told = await self._groups.progress(self._http.metrics_group_partitions_max)
            found = [CoordinatedGroup(*it, self._node_id) for it in told.groups]
            groups = _GroupSurvey(began_ms, found, told.omitted)
        self._last = _Survey(began_ms, failures, keyless, damaged, groups)


def _each_once(
    here: list[CoordinatedGroup], elsewhere: list[CoordinatedGroup]
) -> list[CoordinatedGroup]:
    """While a group's coordinator moves, two may tell of it."""
    return list({it.group_id: it for it in (*elsewhere, *here)}.values())


def why_no_tail(http: HttpSection, *, is_guarded: bool = False) -> str:
    """Empty where the page may show payloads."""
    if http.show_payloads == "on" or (
        http.show_payloads == "auto" and (is_guarded or _is_loopback(http.host))
    ):
        return ""
    if http.show_payloads == "off":
        return "payloads are not shown: http.show_payloads is off"
    return (
        "payloads are not shown on this port: it is open to other machines. "
        'Set http.show_payloads = "on" where only those may reach it who may read every stream'
    )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
