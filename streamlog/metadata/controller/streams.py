"""Streams come, change and go. Pure."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from streamlog.errors import (
    InvalidRequest,
    InvalidStreamConfig,
    StreamExists,
    UnknownTopicId,
)
from streamlog.metadata.controller.decision import Decision
from streamlog.metadata.controller.election import revived
from streamlog.metadata.controller.partition_changes import (
    PartitionChanges,
    ReplicaPlace,
    available_nodes,
    known_node,
)
from streamlog.metadata.controller.placement import (
    Placement,
    check_machines,
    check_room,
    new_partition,
)
from streamlog.metadata.controller.reassignment import retargeted
from streamlog.metadata.image.metadata_image import MetadataImage, PartitionImage, StreamImage
from streamlog.metadata.image.records import StreamCreated, StreamDeleted, StreamUpdated
from streamlog.metadata.stream.origin_circles import check_origins
from streamlog.metadata.stream.republish_circles import check_circle
from streamlog.metadata.stream.stream_config import (
    StreamConfig,
    check_collision,
    check_writable_by_clients,
    is_internal,
)
from streamlog.metadata.stream.stream_subjects import bound_subjects
from streamlog.metadata.stream.write_state import check_seal
from streamlog.model import NO_LEADER, NodeId


def create_stream(
    image: MetadataImage,
    config: StreamConfig,
    *,
    new_id: UUID,
    now_ms: int,
    live: AbstractSet[NodeId] | None = None,
    assignments: Sequence[tuple[NodeId, ...]] = (),
    restored_end: int = 0,
) -> Decision:
    """A stream and its partitions; the same again is a success without records.

    ``assignments``: who keeps each partition, where that is not left to the controller. ``restored_end``: see
    ``StreamImage``.
    Raises StreamExists, InvalidStreamName, InvalidStreamConfig; InvalidRequest, NodeNotFound for wrong assignments.
    Without ``live`` every node counts as alive.
    """
    known = image.streams.get(config.name)
    if known is not None:
        if known.config == config:
            return Decision(result={"created": False})
        raise StreamExists(f"stream {config.name!r} exists with another configuration")
    check_collision(config.name, image.streams)
    check_seal(None, config)
    _check_cluster(image, config)
    check_circle(config, (stream.config for stream in image.streams.values()))
    check_origins(config, None, partial(_config_of, image))
    changes = _draft(image, live)
    check_room(image, config.replicas, changes.hosts)
    created = StreamCreated(
        stream_id=new_id, config=config, created_ms=now_ms, restored_end=restored_end
    )
    changes.records.append(created)
    _add(changes, config, range(config.partitions), Placement(changes), assignments)
    return changes.decision(created=True)


def _config_of(image: MetadataImage, name: str) -> StreamConfig | None:
    found = image.streams.get(name)
    return None if found is None else found.config


def check_seen(image: MetadataImage, name: str, seen: StreamConfig | None) -> None:
    """A node has judged by ``seen`` whether a change is allowed. If two changes are asked for at
    once, each may be allowed, and both together not. Raises StreamNotFound, InvalidStreamConfig.
    """
    if seen is None:
        return
    known = image.stream(name).config
    sizes = known.partitions, known.replicas
    same = sizes == (seen.partitions, seen.replicas)
    if not same or bound_subjects(known) != bound_subjects(seen):
        text = f"{name!r} was changed in the same moment: look at it, and ask again"
        raise InvalidStreamConfig(text)


def update_stream(
    image: MetadataImage,
    config: StreamConfig,
    *,
    live: AbstractSet[NodeId] | None = None,
    assignments: Sequence[tuple[NodeId, ...]] = (),
) -> Decision:
    """Another configuration for a stream; what cannot be changed is refused.

    More partitions are placed, where ``assignments`` says if it says anything; for another number
    of replicas each partition begins to move. Raises StreamNotFound, InvalidStreamConfig;
    InvalidRequest, NodeNotFound for wrong assignments.
    """
    stream = image.stream(config.name)
    known = stream.config
    if known == config:
        return Decision()
    check_seal(known, config)
    _check_lasting(known, config)
    _check_cluster(image, config)
    check_circle(config, (other.config for other in image.streams.values()))
    check_origins(config, known, partial(_config_of, image))
    if config.partitions < known.partitions:
        raise InvalidStreamConfig(
            f"partitions: cannot become fewer (from {known.partitions} to {config.partitions})"
        )
    if config.partitions != known.partitions and is_internal(config.name):
        raise InvalidStreamConfig(f"partitions: {config.name} keeps those that it was made with")
    changes = _draft(image, live)
    changes.records.append(StreamUpdated(config=config))
    after = StreamImage(config, stream.stream_id, stream.created_ms, stream.partitions)
    placement = Placement(changes, stream.partitions)
    if config.replicas != known.replicas:
        _resize(changes, after, placement)
    elif config.unclean_election and not known.unclean_election:
        _revive(changes, after)
    _add(changes, config, range(known.partitions, config.partitions), placement, assignments)
    return changes.decision()


class Lasting(NamedTuple):
    """A setting that is not taken back once it is on."""

    name: str
    jetstream: str
    """Its field of JetStream's StreamConfig."""
    told: str
    """What is said to who tries, in JetStream's words."""


def _promise(name: str, what: str) -> Lasting:
    return Lasting(name, name, f"stream configuration update can not {what}")


LASTING: Final = (
    _promise("sealed", "unseal a sealed stream"),
    _promise("deny_delete", "cancel deny message deletes"),
    _promise("deny_purge", "cancel deny purge"),
    Lasting("allow_ttl", "allow_msg_ttl", "message TTL status can not be disabled"),
    _promise("tiered", "take a stream out of tiered storage"),
    Lasting("allow_schedules", "allow_msg_schedules", "message schedules can not be disabled"),
)


def _check_lasting(known: StreamConfig, config: StreamConfig) -> None:
    """What has been promised of a stream is not taken back."""
    for lasting in LASTING:
        if getattr(known, lasting.name) and not getattr(config, lasting.name):
            raise InvalidStreamConfig(lasting.told)
    if known.allow_counter != config.allow_counter:
        raise InvalidStreamConfig(
            "stream configuration update can not change message counter setting"
        )
    if known.storage != config.storage:
        raise InvalidStreamConfig("stream configuration update can not change storage type")
    if known.persist_mode != config.persist_mode:
        raise InvalidStreamConfig("stream configuration update can not change persist mode")
    if known.first_sequence != config.first_sequence:
        raise InvalidStreamConfig(
            f"first_sequence: cannot be changed (from {known.first_sequence} to"
            f" {config.first_sequence}): it is where the log began"
        )
    if known.retention != config.retention and "workqueue" in (known.retention, config.retention):
        raise InvalidStreamConfig(
            "stream configuration update can not change retention policy to/from workqueue"
        )


def _check_cluster(image: MetadataImage, config: StreamConfig) -> None:
    if config.placement_cluster not in ("", image.cluster_id):
        raise InvalidStreamConfig(
            f"placement_cluster: {config.placement_cluster[:60]!r} is not this cluster"
            f" ({image.cluster_id!r})"
        )


def delete_stream(image: MetadataImage, name: str, stream_id: UUID | None = None) -> Decision:
    """The end of a stream; with ``stream_id``, of that one alone. Raises StreamNotFound,
    InvalidStreamName, UnknownTopicId.
    """
    check_writable_by_clients(name)
    known = image.stream(name).stream_id
    if stream_id not in (None, known):
        raise UnknownTopicId(f"no stream has the id {stream_id}: {name!r} is another one by now")
    return Decision((StreamDeleted(name=name, stream_id=known),))


def _add(
    changes: PartitionChanges,
    config: StreamConfig,
    numbers: range,
    placement: Placement,
    assignments: Sequence[tuple[NodeId, ...]],
) -> None:
    """The new partitions of these numbers."""
    if not assignments:
        for number in numbers:
            changes.add(config.name, number, placement.new_partition(config.replicas))
        return
    if len(assignments) != len(numbers):
        raise InvalidRequest(
            f"nodes are named for {len(assignments)} new partitions, of {len(numbers)}"
        )
    for number, nodes in zip(numbers, assignments, strict=True):
        _check_assignment(changes, config, number, nodes)
        changes.add(config.name, number, new_partition(nodes, changes.image.leader_epochs_end))


def _check_assignment(
    changes: PartitionChanges, config: StreamConfig, number: int, nodes: tuple[NodeId, ...]
) -> None:
    if len(set(nodes)) != len(nodes) or len(nodes) != config.replicas:
        raise InvalidRequest(
            f"partition {number}: {list(nodes)} are not {config.replicas} different nodes"
        )
    for node_id in nodes:
        known_node(changes.image, node_id)
        if node_id not in changes.hosts:
            raise InvalidRequest(
                f"partition {number}: node {node_id} is not alive, or is being drained"
            )
    check_machines(changes.image, nodes)


def _resize(changes: PartitionChanges, stream: StreamImage, placement: Placement) -> None:
    wanted = stream.config.replicas
    for number, partition in enumerate(stream.partitions):
        if len(partition.target) > wanted:
            target = placement.fewer(partition, wanted)
        else:
            target = _grown(changes, partition, wanted, placement)
        place = ReplicaPlace(stream, number, partition)
        changes.put(place, retargeted(changes, place, target))


def _grown(
    changes: PartitionChanges, partition: PartitionImage, wanted: int, placement: Placement
) -> tuple[NodeId, ...]:
    """Those first that a move before this one had yet to let go: they have the data."""
    machine_of = changes.image.machine_of
    kept = partition.target
    for node in partition.removing:
        taken = {machine_of(it) for it in kept}
        if node in changes.hosts and machine_of(node) not in taken and len(kept) < wanted:
            kept = (*kept, node)
    return (*kept, *placement.more(kept, wanted - len(kept)))


def _revive(changes: PartitionChanges, stream: StreamImage) -> None:
    for number, partition in enumerate(stream.partitions):
        if partition.leader == NO_LEADER:
            place = ReplicaPlace(stream, number, partition)
            changes.put(place, revived(changes, place, partition))


def _draft(image: MetadataImage, live: AbstractSet[NodeId] | None) -> PartitionChanges:
    return PartitionChanges(
        image, available_nodes(image, frozenset(image.nodes) if live is None else live)
    )
