"""Voters as the configuration, the records and the quorum's core have them. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final
from uuid import NAMESPACE_URL, UUID, uuid5

from streamlog.errors import ConfigError, InvalidRequest, NodeNotFound
from streamlog.metadata.image.image_types import NodeImage
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import VotersChanged
from streamlog.model import NodeId
from streamlog.raft.voters import ReplicaKey, Voter, VoterSet

KEY: Final = "cluster.voters"
_VOTER: Final = re.compile(r"(\d+)@(\[[0-9A-Fa-f:.]+\]|[^:@\[\]]+):(\d+)")


def configured_voters(texts: Sequence[str]) -> VoterSet:
    """Of ``id@host:port``. Raises ConfigError."""
    voters: dict[NodeId, Voter] = {}
    for text in texts:
        match = _VOTER.fullmatch(text)
        if match is None or not 0 < int(match[3]) < 65536 or int(match[1]) < 1:
            raise ConfigError(KEY, f"{text!r} is not id@host:port", "write 1@node-1:9092")
        node_id = NodeId(int(match[1]))
        if node_id in voters:
            raise ConfigError(KEY, f"node {node_id} is there twice", "give each node its own id")
        voters[node_id] = Voter(node_id, match[2].strip("[]"), int(match[3]))
    return VoterSet.of(voters.values())


def fingerprint(cluster_id: str, voters: VoterSet) -> UUID:
    """The same where the same voters are configured; compared while there is no log to ask."""
    lines = [f"{it.node_id}@{it.host}:{it.port}" for it in voters.by_id.values()]
    return uuid5(NAMESPACE_URL, "\n".join([cluster_id, *sorted(lines)]))


def with_directories(voters: VoterSet, keys: Iterable[ReplicaKey]) -> VoterSet:
    """These replicas are the ones that vote for their nodes."""
    by_id: Mapping[NodeId, Voter] = voters.by_id
    known = {key.node_id: key.directory_id for key in keys if key.node_id in by_id}
    return VoterSet.of(
        replace(it, directory_id=known.get(it.node_id, it.directory_id)) for it in by_id.values()
    )


def with_addresses(voters: VoterSet, nodes: Mapping[NodeId, NodeImage]) -> VoterSet:
    """Voters listen where they have registered, whatever was configured once."""
    by_id = voters.by_id
    return VoterSet.of(
        replace(it, host=node.host, port=node.port)
        if (node := nodes.get(it.node_id)) and node.has_address
        else it
        for it in by_id.values()
    )


def with_voter(voters: VoterSet, node: NodeImage, key: ReplicaKey) -> VoterSet:
    """One more. Raises InvalidRequest."""
    if node.node_id in voters.ids:
        raise InvalidRequest(f"node {node.node_id} is a voter already")
    added = Voter(node.node_id, node.host, node.port, key.directory_id)
    return VoterSet.of([*voters.by_id.values(), added])


def without_voter(voters: VoterSet, node_id: NodeId) -> VoterSet:
    """One fewer. Raises InvalidRequest, NodeNotFound."""
    if node_id not in voters.ids:
        raise NodeNotFound(f"node {node_id} is not a voter")
    if len(voters) == 1:
        raise InvalidRequest(f"node {node_id} is the only voter")
    return VoterSet.of(it for it in voters.by_id.values() if it.node_id != node_id)


# Decisions, each on one image


def first_voters(voters: VoterSet, electors: Iterable[ReplicaKey]) -> VotersChanged:
    """For the log to begin with, in place of the configured ones."""
    return VotersChanged.of(with_directories(voters, electors))


def add_voter(
    image: MetadataImage, node_id: NodeId, caught_up: Mapping[NodeId, ReplicaKey]
) -> tuple[VotersChanged, ...]:
    """``caught_up``: replicas that follow closely. Raises InvalidRequest."""
    node = image.nodes.get(node_id)
    if node is None or node.fenced or node_id not in caught_up:
        raise InvalidRequest(f"node {node_id} does not follow the metadata closely enough to vote")
    voters = with_voter(image.voters, node, caught_up[node_id])
    return (VotersChanged.of(voters, image.returning - {node_id}),)


def remove_voter(image: MetadataImage, node_id: NodeId) -> tuple[VotersChanged, ...]:
    """Raises InvalidRequest, NodeNotFound."""
    if node_id in image.returning:
        return (VotersChanged.of(image.voters, image.returning - {node_id}),)
    return (VotersChanged.of(without_voter(image.voters, node_id), image.returning),)


def tended_voters(
    image: MetadataImage, replaced: Iterable[ReplicaKey], caught_up: Mapping[NodeId, ReplicaKey]
) -> tuple[VotersChanged, ...]:
    """What is due without being asked for, one step of it; nothing if nothing is.

    A voter whose folder was lost is removed; it is added, with the folder that it has then, once
    that is committed. Voters listen where their nodes have registered: no majority is another one
    for that.

    ``replaced``: replicas in other folders than the recorded ones, which are silent.
    """
    voters = with_addresses(image.voters, image.nodes)
    for node_id in sorted(image.returning):
        node = image.nodes.get(node_id)
        if node is not None and node.has_address and node_id in caught_up:
            voters = with_voter(voters, node, caught_up[node_id])
            return (VotersChanged.of(voters, image.returning - {node_id}),)
    for node_id in (key.node_id for key in replaced):
        if node_id in voters.ids and len(voters) > 1:
            voters = without_voter(voters, node_id)
            return (VotersChanged.of(voters, image.returning | {node_id}),)
    if voters == image.voters:
        return ()
    return (VotersChanged.of(voters, image.returning),)
