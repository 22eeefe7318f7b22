"""What a node's settings make of the metadata quorum."""

import random
from uuid import UUID

from streamlog.client.security import NO_SECURITY, Security
from streamlog.config import Settings
from streamlog.errors import ConfigError
from streamlog.log.storage.file_pool import FilePool
from streamlog.log.storage.reserve import Reserve, ReservingDisk
from streamlog.metadata.nodes.data_dir import DataDir
from streamlog.metadata.quorum.metadata_replica import MetadataReplica
from streamlog.metadata.quorum.peers import Peers
from streamlog.metadata.quorum.store import MetadataStore
from streamlog.metadata.quorum.voter_sets import configured_voters, fingerprint
from streamlog.metadata.service import MetadataService
from streamlog.model import NodeId
from streamlog.raft.node import RaftSettings
from streamlog.raft.voters import Voter, VoterSet

METADATA_FILES_MAX = 16


def build_metadata(
    settings: Settings,
    data_dir: DataDir,
    incarnation: UUID,
    reserve: Reserve,
    security: Security = NO_SECURITY,
) -> MetadataService:
    """Nothing is opened yet. Raises ConfigError."""
    voters = voters_of(settings)
    cluster = settings.cluster
    if voters.ids != {data_dir.node_id} and cluster.id is None:
        raise ConfigError("cluster.id", "is missing", "set it to the same text on every node")
    disk = ReservingDisk(reserve)
    store = MetadataStore(
        data_dir.metadata,
        data_dir.cluster_id,
        disk=disk,
        files=FilePool(disk, METADATA_FILES_MAX),
        power_lost=data_dir.power_was_lost(),
    )
    replica = MetadataReplica(
        store,
        node_id=data_dir.node_id,
        configured=voters,
        voters_id=fingerprint(data_dir.cluster_id, voters),
        settings=RaftSettings(
            election_timeout_ms=cluster.election_timeout_ms,
            request_timeout_ms=cluster.request_timeout_ms,
        ),
        random=random.random,
    )
    return MetadataService(
        replica,
        data_dir.cluster_id,
        node_id=data_dir.node_id,
        incarnation=incarnation,
        settings=cluster,
        peers=Peers(data_dir.cluster_id, data_dir.node_id, security=security),
        may_encrypt=settings.encryption.active_key is not None,
    )


def voters_of(settings: Settings) -> VoterSet:
    """As configured; none: this node alone. Raises ConfigError."""
    if settings.cluster.voters:
        return configured_voters(settings.cluster.voters)
    kafka = settings.kafka
    host = kafka.advertised_host or kafka.host
    port = kafka.advertised_port or kafka.port
    return VoterSet.of([Voter(NodeId(settings.node.id), host, port)])
