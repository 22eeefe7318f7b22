"""What a node may ask the controller for, and what comes of it: one JSON object per command, with a tag. Pure.

Any node takes a command; ``forwarding`` hands it on. ``decode_command`` is what came over the wire.
"""

import json
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from streamlog.acl.filters import RuleFilter
from streamlog.acl.rules import Rule
from streamlog.config import SyncPolicy
from streamlog.errors import InvalidRequest, MalformedFrame, StreamlogError
from streamlog.metadata.image.credential import Bytes, Credentials, UserName
from streamlog.metadata.image.feature_level import KNOWN, LevelRange
from streamlog.metadata.image.quota import QuotaKey, Rate
from streamlog.metadata.stream.alteration import SettingChange
from streamlog.metadata.stream.stream_config import CheckedConfig
from streamlog.model import NodeId, ScramName
from streamlog.wire.errors import error_named
from streamlog.wire.header import CLIENT_ID_CHARS_MAX


class Command(BaseModel):
    """A wish, which ``metadata.controller`` grants."""

    model_config = ConfigDict(extra="forbid", frozen=True)


# Streams


class CreateStream(Command):
    """The same again is a success."""

    config: CheckedConfig
    restored_end: Annotated[int, Field(ge=0, exclude_if=(0).__eq__)] = 0
    """See ``StreamImage``."""


class PlaceStream(Command):
    """A stream whose partitions are kept by the nodes named here, the first of each leading it."""

    config: CheckedConfig
    assignments: tuple[tuple[NodeId, ...], ...]
    """Of every partition, in their order."""


class UpdateStream(Command):
    """Another configuration; more partitions are added, other replicas are placed."""

    config: CheckedConfig
    seen: CheckedConfig | None = None
    """The configuration for which the caller was authorized; the present one must not be bound to more subjects."""


class AlterStream(Command):
    """Some settings changed, on top of the configuration as it is by then."""

    name: str
    changes: tuple[SettingChange, ...]
    assignments: tuple[tuple[NodeId, ...], ...] = ()
    """Who keeps each partition that is new by this; empty: the controller chooses."""
    seen: CheckedConfig | None = None
    """As above."""


class DeleteStream(Command):
    """For good."""

    name: str
    stream_id: UUID | None = None
    """Only if it has this id: another one may have got the name since the caller looked."""


class MovePartition(Command):
    """Have the partition kept by ``replicas``, the first of them preferred as leader."""

    stream: str
    partition: int
    replicas: tuple[NodeId, ...]


class CancelMove(Command):
    """Stay with the replicas from before a move that has not ended."""

    stream: str
    partition: int


class ElectLeader(Command):
    """The preferred replica; ``leader`` names another one.

    ``unclean``: any live replica, whatever is lost by it; for when no in-sync one will come back.
    """

    stream: str
    partition: int
    leader: NodeId | None = None
    unclean: bool = False


class RebalanceLeaders(Command):
    """Every partition is led by its preferred replica, where that one is in sync."""


# Nodes


class RegisterNode(Command):
    """A process has started. Refused while another one with this id is alive."""

    node_id: NodeId
    incarnation: UUID
    directory_id: UUID
    """Of the data folder; another one than before: what the node had is gone."""
    host: str
    port: int
    rack: str | None = None
    stamps: tuple[UUID, ...] = ()
    """Of the data folder; see ``last_run.Run``. A folder without the last one that the controller
    knows is an older copy, as of a snapshot of the machine.
    """
    tail_lost: bool = False
    """The machine may have lost writes that were not synced."""
    sync: SyncPolicy = "commit"
    """The node's default, for streams that name none."""
    machine: NodeId | None = None
    """The id of the first node of its machine, where it shares that with others."""

    @model_serializer(mode="wrap")
    def _without_machine(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A controller of 0.1.0 does not know the field: it is sent only where it says something."""
        body: dict[str, Any] = dump(self)
        if self.machine is None:
            del body["machine"]
        return body


class Heartbeat(Command):
    """The node of this registration is alive, and has applied the metadata up to ``offset``."""

    node_id: NodeId
    node_epoch: int
    offset: int
    offline: tuple[tuple[str, int], ...] = ()
    """Partitions whose log this node cannot write: it must neither lead them nor be in sync."""
    full: bool = False
    """There is no room on its disk: others that have room are to lead, and it is not in sync."""
    unfit: tuple[str, ...] = ()
    """What else is wrong with it, by the names of ``metadata.nodes.node_condition``."""
    clock_ahead_ms: int | None = None
    """How far its clock is ahead of the controller's; None before it is known."""
    levels: LevelRange = KNOWN
    """The feature levels that it knows."""
    stall_ms: Annotated[int, Field(ge=0, exclude_if=(0).__eq__)] = 0
    """For so long its disk has owed an answer: the node is alive, but no better than one that is silent. Its lease
    is counted from then, too."""


class StampFolder(Command):
    """The node's data folder holds these stamps, the newest last: an older copy lacks it."""

    node_id: NodeId
    node_epoch: int
    stamps: tuple[UUID, ...] = Field(min_length=1)


class StopNode(Command):
    """The node is about to stop: others lead first, and it leaves the in-sync replicas."""

    node_id: NodeId
    node_epoch: int


class FenceNode(Command):
    """The node's session is over. Only the controller itself asks for it."""

    node_id: NodeId
    node_epoch: int


class DrainNode(Command):
    """Move everything off the node, and place nothing on it; ``undo`` ends that."""

    node_id: NodeId
    undo: bool = False


class RemoveNode(Command):
    """Forget a node that keeps nothing and is no voter."""

    node_id: NodeId


# Producers


class AllocateProducerIds(Command):
    """A block of ids for this node, which no other node gets, now or ever."""

    node_id: NodeId


# Clients


class AlterQuota(Command):
    """Limits set, or ended, for one client id; None: for each that has none of its own."""

    client_id: Annotated[str, Field(max_length=CLIENT_ID_CHARS_MAX)] | None
    values: dict[QuotaKey, Rate | None]


class AlterUser(Command):
    """Credentials set, or taken away, of one user; who has none left is gone."""

    name: UserName
    changed: Credentials = {}
    removed: tuple[ScramName, ...] = ()
    decoy_secret: Bytes
    """Chance, for where the cluster has none such yet."""


# Access


class AddAccessRules(Command):
    """All of them or none; those that hold already are a success."""

    rules: tuple[Rule, ...]


class RemoveAccessRules(Command):
    """Those that any of the filters matches; that there are none is a success."""

    filters: tuple[RuleFilter, ...]


# Replication


class IsrChange(BaseModel):
    """What a leader proposes for one partition."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    stream_id: UUID
    stream: str
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[NodeId, int, int], ...]
    """Members with the node epoch in which each was seen, and with the incarnation of its replica;
    another one by now refuses the change."""


class AlterIsr(Command):
    """A leader's proposals; each is granted or refused by itself."""

    node_id: NodeId
    node_epoch: int
    changes: tuple[IsrChange, ...]


class TierChange(BaseModel):
    """What a leader asks to have accepted for one partition: the manifest that it has put into the object store, or
    a later log start alone.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    stream_id: UUID
    stream: str
    partition: int
    leader_epoch: int
    """In which it leads. A new manifest is of this epoch."""
    expected: tuple[int, int] | None
    """Leader epoch and version of the manifest that counts up to now; None: there is none."""
    version: int
    """Of the manifest: one more than the expected one's, or the same for a later log start alone. 0: there is none yet,
    and the partition becomes a tiered one."""
    log_start_offset: int
    end_offset: int


class AlterTier(Command):
    """A leader's changes of what is in the object store; each is granted or refused by itself."""

    node_id: NodeId
    node_epoch: int
    changes: tuple[TierChange, ...]


class ReportLeader(Command):
    """A follower in sync cannot reach the leader. The word of a majority of the ISR counts."""

    node_id: NodeId
    node_epoch: int
    stream: str
    partition: int
    leader: NodeId
    leader_epoch: int


# The quorum itself; granted by the shell, for Raft decides


class AddVoter(Command):
    """Have a registered node vote."""

    node_id: NodeId


class RemoveVoter(Command):
    """Have a voter vote no longer."""

    node_id: NodeId


class TransferController(Command):
    """Have another voter be the controller; None: the one most caught up."""

    node_id: NodeId | None = None


# Asked of a node itself, and never handed on


class AwaitApplied(Command):
    """Answer when the node has applied the metadata up to ``offset``; with ``stream``, when it has
    also opened what it keeps of this stream, and NATS knows that it listens for what it leads.
    """

    offset: int
    wait_ms: int
    stream: str | None = None


class RaiseLevel(Command):
    """Have the cluster at this feature level, if all nodes know it."""

    level: int


class DescribeCluster(Command):
    """What the controller knows of quorum and nodes; nothing is changed."""

    local: bool = False
    """What the node that is asked knows itself, for when there is no controller."""


class SpendNonce(Command):
    """A signed request is about to be carried out; nothing is logged, the controller remembers."""

    signer: Annotated[str, Field(min_length=1, max_length=64)]
    """The public key that has signed it."""
    nonce: Annotated[str, Field(min_length=1, max_length=64)]
    signed_ms: int
    window_ms: Annotated[int, Field(ge=0, le=600_000)]


class ExportMetadata(Command):
    """All that is committed of the metadata, as a snapshot; nothing is changed."""


_TYPES: dict[str, type[Command]] = {
    kind.__name__: kind
    for kind in (
        CreateStream,
        PlaceStream,
        UpdateStream,
        AlterStream,
        DeleteStream,
        MovePartition,
        CancelMove,
        ElectLeader,
        RebalanceLeaders,
        RegisterNode,
        Heartbeat,
        StampFolder,
        StopNode,
        FenceNode,
        DrainNode,
        RemoveNode,
        AllocateProducerIds,
        AlterQuota,
        AlterUser,
        AddAccessRules,
        RemoveAccessRules,
        AlterIsr,
        AlterTier,
        ReportLeader,
        AddVoter,
        RemoveVoter,
        TransferController,
        RaiseLevel,
        AwaitApplied,
        DescribeCluster,
        SpendNonce,
        ExportMetadata,
    )
}

IsrVerdict = Literal["granted", "stale", "refused"]
"""For each change of AlterIsr: in force; the proposer's view is old; a member may not be in."""
TierVerdict = Literal["granted", "stale", "refused"]
"""For each change of AlterTier: in force; the leader's view is old; it contradicts what is in force."""


def encode_command(command: Command) -> bytes:
    body = command.model_dump(mode="json")
    return json.dumps({"command": type(command).__name__, **body}, separators=(",", ":")).encode()


def decode_command(data: bytes | memoryview) -> Command:
    """Raises InvalidRequest."""
    try:
        body = json.loads(bytes(data))
        kind = _TYPES[body.pop("command")]
        return kind.model_validate(body)
    except (ValueError, AttributeError, KeyError, TypeError, ValidationError) as error:
        raise InvalidRequest(f"not a command: {error}") from None
    except RecursionError:
        raise InvalidRequest("not a command: it nests too deep") from None


class Granted(NamedTuple):
    """A command is carried out: all that came of it stands below ``offset`` of the metadata log."""

    offset: int
    result: dict[str, Any]


def encode_granted(granted: Granted) -> bytes:
    return json.dumps({"offset": granted.offset, "result": granted.result}).encode()


def encode_refused(error: StreamlogError) -> bytes:
    return json.dumps({"error": type(error).__name__, "message": str(error)}).encode()


def decode_result(data: bytes | memoryview) -> Granted:
    """Raises the error that the answer tells of."""
    try:
        content = json.loads(bytes(data))
        if "error" in content:
            raise error_named(str(content["error"]), str(content["message"]))
        return Granted(int(content["offset"]), dict(content["result"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise MalformedFrame("the answer to a command does not decode") from None
