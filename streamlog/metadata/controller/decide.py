"""The controller's decision about one command (Kafka's QuorumController). Pure."""

from collections.abc import Set as AbstractSet
from uuid import UUID

from streamlog.errors import InvalidRequest
from streamlog.metadata import commands
from streamlog.metadata.commands import Command
from streamlog.metadata.controller import (
    clients,
    drain,
    election,
    isr,
    node_lifecycle,
    reassignment,
    streams,
    tier,
)
from streamlog.metadata.controller.decision import Decision
from streamlog.metadata.controller.partition_changes import PartitionChanges, available_nodes
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.stream.alteration import altered
from streamlog.model import NodeId


def decide(
    image: MetadataImage,
    command: Command,
    *,
    now_ms: int,
    new_id: UUID,
    live: AbstractSet[NodeId],
    heard_of: AbstractSet[NodeId] | None = None,
) -> Decision:
    """What ``command`` comes to on ``image``, the newest one. Raises InvalidRequest.

    ``live``: nodes with a session; ``heard_of``: those that this controller has heard of itself,
    where others had a session with the one before it (None: all); ``now_ms``: wall clock;
    ``new_id``: for what is created.

    Results: RegisterNode ``{"node_epoch", "tail_lost", "data_lost", "older_copy"}`` (the lists are
    of [stream, partition]; ``older_copy``: the data folder is one); CreateStream, PlaceStream
    ``{"created"}``; AlterIsr, AlterTier ``{"verdicts": [...]}``, one for each change; ElectLeader ``{"leader",
    "leader_epoch"}``; RebalanceLeaders ``{"moved", "left"}``; Heartbeat ``{"fenced"}``;
    AllocateProducerIds ``{"first", "end"}``; RemoveAccessRules ``{"removed"}``, for each filter its
    rules.

    A registration begins fenced: the first Heartbeat whose ``offset`` (exclusive) is past the node
    epoch unfences it, and has partitions led that could not be without it. After StopNode nothing
    unfences it but a new registration.

    ReportLeader acts at once: ask ``Sessions.report`` first whether enough others say so.
    Quorum commands and questions to a node (AddVoter, AwaitApplied...) are InvalidRequest here.
    """
    match command:
        case commands.CreateStream():
            decision = streams.create_stream(
                image,
                command.config,
                new_id=new_id,
                now_ms=now_ms,
                live=live,
                restored_end=command.restored_end,
            )
        case commands.PlaceStream(config=config, assignments=assignments):
            decision = streams.create_stream(
                image, config, new_id=new_id, now_ms=now_ms, live=live, assignments=assignments
            )
        case commands.UpdateStream():
            streams.check_seen(image, command.config.name, command.seen)
            decision = streams.update_stream(image, command.config, live=live)
        case commands.AlterStream():
            streams.check_seen(image, command.name, command.seen)
            config = altered(image.stream(command.name).config, command.changes)
            decision = streams.update_stream(
                image, config, live=live, assignments=command.assignments
            )
        case commands.DeleteStream():
            decision = streams.delete_stream(image, command.name, command.stream_id)
        case commands.RegisterNode():
            decision = node_lifecycle.register(image, command, live, heard_of)
        case commands.Heartbeat():
            decision = node_lifecycle.heartbeat(image, command, live, heard_of)
        case commands.FenceNode():
            decision = node_lifecycle.fence(image, command, live, heard_of)
        case commands.StopNode():
            decision = node_lifecycle.stop(image, command, live, heard_of)
        case commands.AlterTier():
            decision = tier.alter_tier(image, command)
        case commands.StampFolder() | commands.RemoveNode():
            decision = _about_nodes(image, command)
        case (
            commands.AllocateProducerIds()
            | commands.AlterQuota()
            | commands.AlterUser()
            | commands.AddAccessRules()
            | commands.RemoveAccessRules()
        ):
            decision = _about_clients(image, command)
        case _:
            decision = _about_partitions(
                PartitionChanges(image, available_nodes(image, live)), command
            )
    return decision


def _about_nodes(
    image: MetadataImage, command: commands.StampFolder | commands.RemoveNode
) -> Decision:
    if isinstance(command, commands.StampFolder):
        return node_lifecycle.stamp(image, command)
    return node_lifecycle.remove_node(image, command)


def _about_clients(
    image: MetadataImage,
    command: (
        commands.AllocateProducerIds
        | commands.AlterQuota
        | commands.AlterUser
        | commands.AddAccessRules
        | commands.RemoveAccessRules
    ),
) -> Decision:
    match command:
        case commands.AlterQuota():
            return clients.alter_quota(image, command)
        case commands.AlterUser():
            return clients.alter_user(image, command)
        case commands.AllocateProducerIds():
            return clients.allocate_producer_ids(image, command)
        case _:
            return clients.change_access_rules(image, command)


def _about_partitions(changes: PartitionChanges, command: Command) -> Decision:
    match command:
        case commands.AlterIsr():
            decision = isr.alter_isr(changes, command)
        case commands.ElectLeader():
            decision = election.elect_leader(changes, command)
        case commands.RebalanceLeaders():
            decision = election.elect_preferred_leaders(changes)
        case commands.ReportLeader():
            decision = election.replace_leader(changes, command)
        case commands.MovePartition():
            decision = reassignment.move_partition(changes, command)
        case commands.CancelMove():
            decision = reassignment.cancel_move(changes, command)
        case commands.DrainNode():
            decision = drain.drain_node(changes, command)
        case _:
            raise InvalidRequest(f"{type(command).__name__} is not for the controller to decide")
    return decision
