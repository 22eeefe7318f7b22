"""What members of the quorum say, as Kafka's requests and answers. Pure.

One topic with one partition stands for the metadata log. What Kafka's forms have no field for:

- the fingerprint of the configured voters travels as a vote's ``voter_directory_id``
- the cluster of a node that hands on a command travels in the envelope's principal
- the folder of who answers a vote travels as the host of its one node endpoint, and for how long it has not heard
  from a leader as the port
"""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from streamlog.errors import MalformedFrame
from streamlog.metadata.quorum.store import METADATA_LOG
from streamlog.model import NO_LEADER, NodeId
from streamlog.raft.messages import (
    BeginEpochRequest,
    EndEpochRequest,
    EpochAnswer,
    Fault,
    FetchAnswer,
    RaftFetchRequest,
    SnapshotId,
    VoteAnswer,
    VoteRequest,
)
from streamlog.raft.voters import ReplicaKey
from streamlog.wire import fetch
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.leaders import CurrentLeader

Message = Mapping[str, Any]

FETCH_BYTES: Final = 1 << 20
PORT_MAX: Final = (1 << 16) - 1
_NAME: Final = METADATA_LOG.stream
_FORWARDED: Final = b"streamlog:"
_NO_FOLDER: Final = UUID(int=0)

_CODES: Final = {
    Fault.NONE: ErrorCode.none,
    Fault.FENCED_EPOCH: ErrorCode.fenced_leader_epoch,
    Fault.UNKNOWN_EPOCH: ErrorCode.unknown_leader_epoch,
    Fault.NOT_LEADER: ErrorCode.not_leader_or_follower,
    Fault.WRONG_VOTERS: ErrorCode.inconsistent_voter_set,
    Fault.OUT_OF_RANGE: ErrorCode.offset_out_of_range,
}
_FAULTS: Final = {code: fault for fault, code in _CODES.items()}


def encode_vote(request: VoteRequest, cluster_id: str, peer: NodeId) -> Message:
    return {
        "cluster_id": cluster_id,
        "voter_id": peer,
        "topics": _topics(
            replica_epoch=request.epoch,
            replica_id=request.candidate.node_id,
            replica_directory_id=request.candidate.directory_id,
            voter_directory_id=request.voters_id,
            last_offset_epoch=request.last_epoch,
            last_offset=request.end_offset,
            pre_vote=request.pre_vote,
        ),
    }


def read_vote(message: Message) -> VoteRequest:
    it = _partition(message)
    return VoteRequest(
        it["replica_epoch"],
        ReplicaKey(NodeId(it["replica_id"]), it["replica_directory_id"] or _NO_FOLDER),
        it["last_offset_epoch"],
        it["last_offset"],
        it["pre_vote"],
        it["voter_directory_id"] or _NO_FOLDER,
    )


def encode_vote_answer(answer: VoteAnswer) -> Message:
    voter = {
        "node_id": answer.voter.node_id,
        "host": str(answer.voter.directory_id),
        "port": min(answer.silence_ms, PORT_MAX),
    }
    return {
        "topics": _topics(
            error_code=_CODES[answer.fault],
            leader_id=_id(answer.leader),
            leader_epoch=answer.epoch,
            vote_granted=answer.granted,
        ),
        "node_endpoints": [voter],
    }


def read_vote_answer(message: Message) -> VoteAnswer:
    it = _partition(message)
    try:
        (voter,) = message["node_endpoints"]
        key = ReplicaKey(NodeId(voter["node_id"]), UUID(voter["host"]))
    except ValueError:
        raise MalformedFrame("a vote without its voter") from None
    return VoteAnswer(
        it["leader_epoch"], _leader(it), it["vote_granted"], key, _fault(it), voter["port"]
    )


def encode_begin_epoch(request: BeginEpochRequest, cluster_id: str, peer: NodeId) -> Message:
    partition = {"leader_id": request.leader, "leader_epoch": request.epoch}
    return {"cluster_id": cluster_id, "voter_id": peer, "topics": _topics(**partition)}


def read_begin_epoch(message: Message) -> BeginEpochRequest:
    it = _partition(message)
    return BeginEpochRequest(it["leader_epoch"], NodeId(it["leader_id"]))


def encode_end_epoch(request: EndEpochRequest, cluster_id: str) -> Message:
    successors = [{"candidate_id": node_id} for node_id in request.successors]
    return {
        "cluster_id": cluster_id,
        "topics": _topics(
            leader_id=request.leader,
            leader_epoch=request.epoch,
            preferred_candidates=successors,
        ),
    }


def read_end_epoch(message: Message) -> EndEpochRequest:
    it = _partition(message)
    successors = tuple(NodeId(each["candidate_id"]) for each in it["preferred_candidates"])
    return EndEpochRequest(it["leader_epoch"], NodeId(it["leader_id"]), successors)


def encode_epoch_answer(answer: EpochAnswer) -> Message:
    return {
        "topics": _topics(
            error_code=_CODES[answer.fault],
            leader_id=_id(answer.leader),
            leader_epoch=answer.epoch,
        )
    }


def read_epoch_answer(message: Message) -> EpochAnswer:
    it = _partition(message)
    return EpochAnswer(it["leader_epoch"], _leader(it), _fault(it))


def encode_fetch(request: RaftFetchRequest, cluster_id: str) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(
        METADATA_LOG.partition,
        request.offset,
        FETCH_BYTES,
        request.epoch,
        request.last_epoch,
        directory_id=request.replica.directory_id,
    )
    topic = fetch.FetchTopic(_NAME, [partition])
    return fetch.FetchRequest(
        [topic], request.wait_ms, 1, FETCH_BYTES, request.replica.node_id, cluster_id=cluster_id
    )


def read_fetch(request: fetch.FetchRequest) -> RaftFetchRequest:
    it = request.topics[0].partitions[0]
    return RaftFetchRequest(
        it.current_leader_epoch,
        ReplicaKey(NodeId(request.replica_id), it.directory_id or _NO_FOLDER),
        it.fetch_offset,
        it.last_fetched_epoch,
        request.max_wait_ms,
    )


def encode_fetch_answer(answer: FetchAnswer) -> fetch.FetchedPartition:
    """But for the records."""
    snapshot = answer.snapshot and fetch.FetchSnapshot(*answer.snapshot)
    return fetch.FetchedPartition(
        METADATA_LOG.partition,
        _CODES[answer.fault],
        answer.high_watermark,
        -1,
        len(answer.records),
        answer.diverging,
        current_leader=CurrentLeader(_id(answer.leader), answer.epoch),
        snapshot=snapshot,
    )


def read_fetch_answer(response: fetch.FetchResponse) -> FetchAnswer:
    """Raises MalformedFrame."""
    if len(response.partitions) != 1 or response.partitions[0].topic != _NAME:
        raise MalformedFrame("an answer about something else than the metadata log")
    (answer,) = response.partitions
    it, leader = answer.fetched, answer.fetched.current_leader
    if leader is None or it.error_code not in _FAULTS:
        raise MalformedFrame(f"an answer about the metadata log with error {it.error_code}")
    return FetchAnswer(
        leader.leader_epoch,
        None if leader.leader_id == NO_LEADER else NodeId(leader.leader_id),
        _FAULTS[ErrorCode(it.error_code)],
        it.high_watermark,
        it.diverging,
        it.snapshot and SnapshotId(*it.snapshot),
        records=answer.records,
    )


def encode_fetch_snapshot(
    snapshot: SnapshotId, position: int, max_bytes: int, cluster_id: str
) -> Message:
    partition = {
        "partition": METADATA_LOG.partition,
        "current_leader_epoch": -1,
        "snapshot_id": snapshot._asdict(),
        "position": position,
    }
    return {
        "cluster_id": cluster_id,
        "max_bytes": max_bytes,
        "topics": [{"name": _NAME, "partitions": [partition]}],
    }


def read_fetch_snapshot(message: Message) -> tuple[SnapshotId, int, int]:
    """Which one, from where on, and how much of it at most."""
    it = _partition(message)
    wanted = it["snapshot_id"]
    snapshot = SnapshotId(wanted["end_offset"], wanted["epoch"])
    return snapshot, it["position"], message["max_bytes"]


def encode_snapshot_answer(
    snapshot: SnapshotId, position: int, data: bytes, size: int, code: int
) -> Message:
    partition = {
        "index": METADATA_LOG.partition,
        "error_code": code,
        "snapshot_id": snapshot._asdict(),
        "size": size,
        "position": position,
        "unaligned_records": data,
    }
    return {"topics": [{"name": _NAME, "partitions": [partition]}]}


def read_snapshot_answer(message: Message) -> tuple[bytes, int, int]:
    """A piece, the size of the whole, an error code."""
    it = _partition(message)
    return bytes(it["unaligned_records"]), it["size"], it["error_code"]


def encode_principal(cluster_id: str) -> bytes:
    """Of a command that a node of this cluster hands on."""
    return _FORWARDED + cluster_id.encode()


def read_principal(principal: bytes | memoryview | None) -> str | None:
    """The cluster whose node hands the command on; None: it comes from elsewhere."""
    data = bytes(principal or b"")
    if not data.startswith(_FORWARDED):
        return None
    return data[len(_FORWARDED) :].decode(errors="replace")


def _topics(**partition: Any) -> list[Message]:
    return [
        {
            "topic_name": _NAME,
            "partitions": [{"partition_index": METADATA_LOG.partition, **partition}],
        }
    ]


def _partition(message: Message) -> Message:
    try:
        (topic,) = message["topics"]
        (partition,) = topic["partitions"]
    except ValueError:
        raise MalformedFrame("not about the one partition of the metadata log") from None
    if topic.get("topic_name", topic.get("name")) != _NAME:
        raise MalformedFrame("not about the metadata log")
    found: Message = partition
    return found


def _id(leader: NodeId | None) -> int:
    return NO_LEADER if leader is None else leader


def _leader(partition: Message) -> NodeId | None:
    found = partition["leader_id"]
    return None if found == NO_LEADER else NodeId(found)


def _fault(partition: Message) -> Fault:
    try:
        return _FAULTS[ErrorCode(partition["error_code"])]
    except (KeyError, ValueError):
        raise MalformedFrame(f"error {partition['error_code']} of a voter") from None
