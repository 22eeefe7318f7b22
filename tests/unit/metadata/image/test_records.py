import json
from uuid import UUID

import pytest

from streamlog.errors import CorruptData
from streamlog.metadata.image.credential import StoredCredential
from streamlog.metadata.image.quota import Quota
from streamlog.metadata.image.records import (
    DecoySecretChosen,
    LeaderEpochsReserved,
    MetadataLogBegun,
    MetadataRecord,
    NodeDraining,
    NodeFenced,
    NodeFull,
    NodePlaced,
    NodeRegistered,
    NodeRemoved,
    NodeStamped,
    NodeUnfit,
    PartitionChanged,
    ProducerIdsAllocated,
    QuorumLeader,
    QuotaChanged,
    StreamCreated,
    StreamDeleted,
    StreamUpdated,
    TierChanged,
    UserChanged,
    VotersChanged,
    decode_record,
    encode_record,
)
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId
from streamlog.raft.voters import Voter, VoterSet

ID = UUID(int=7)
CONFIG = StreamConfig.of(name="s", subjects=("a.>",), metadata={"k": "grüße"})
CREATED = StreamCreated(stream_id=ID, config=CONFIG, created_ms=5)
ONE = NodeId(1)
CREDENTIAL = StoredCredential(
    salt="c2FsdA==", iterations=8192, stored_key="c3RvcmVk", server_key="c2VydmVy"
)

RECORDS: list[MetadataRecord] = [
    NodeRegistered(
        node_id=ONE, incarnation=ID, host="::1", port=9092, rack="r", directory_id=ID, epoch=4,
        fenced=True,
    ),
    CREATED,
    StreamUpdated(config=CONFIG),
    StreamDeleted(name="s", stream_id=ID),
    PartitionChanged(
        stream="s", partition=0, replicas=(ONE,), leader=ONE, leader_epoch=3, isr=(ONE,),
        partition_epoch=4, adding=(ONE,), removing=(ONE,),
    ),
    TierChanged(
        stream="s", partition=0, leader_epoch=3, manifest_version=9, log_start_offset=5, end_offset=80
    ),
    NodeFenced(node_id=ONE, fenced=True, stopping=True),
    NodeDraining(node_id=ONE, draining=True),
    NodeFull(node_id=ONE, full=True),
    NodeUnfit(node_id=ONE, unfit=("clock",)),
    NodePlaced(node_id=ONE, machine=ONE),
    NodeStamped(node_id=ONE, stamp=ID),
    NodeRemoved(node_id=ONE),
    QuorumLeader(node_id=ONE),
    LeaderEpochsReserved(end=8),
    MetadataLogBegun(log_id=ID, begun_ms=5, first_producer_id=6, first_leader_epoch=7),
    ProducerIdsAllocated(node_id=ONE, end=1000),
    QuotaChanged(client_id=None, quota=Quota(producer_byte_rate=1.5)),
    QuotaChanged(client_id="a", quota=Quota()),
    UserChanged(name="a", credentials={"SCRAM-SHA-256": CREDENTIAL}),
    UserChanged(name="a", credentials={}),
    DecoySecretChosen(secret="c2VjcmV0"),
    VotersChanged.of(VoterSet.of([Voter(ONE, "::1", 9092, ID), Voter(NodeId(2), "h", 9092)])),
]  # fmt: skip

VERSION_1 = {
    b'{"type":"NodeRegistered","version":1,"node_id":1,'
    b'"incarnation":"00000000-0000-0000-0000-000000000007","host":"h","port":9,"rack":null}':
    NodeRegistered(node_id=ONE, incarnation=ID, host="h", port=9),
    b'{"type":"PartitionChanged","version":1,"stream":"s","partition":0,"replicas":[1],'
    b'"leader":1,"leader_epoch":3,"isr":[1],"partition_epoch":4}':
    PartitionChanged(
        stream="s", partition=0, replicas=(ONE,), leader=ONE, leader_epoch=3, isr=(ONE,),
        partition_epoch=4,
    ),
}  # fmt: skip


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: type(r).__name__)
def test_round_trip(record: MetadataRecord) -> None:
    data = encode_record(record)
    assert b"\n" not in data
    assert decode_record(data) == record


def test_what_an_earlier_streamlog_wrote_is_read() -> None:
    for data, record in VERSION_1.items():
        assert decode_record(data) == record
    config = json.loads(encode_record(CREATED))["config"]
    del config["unclean_election"]
    old = {**json.loads(encode_record(CREATED)), "config": config}
    assert decode_record(json.dumps(old, separators=(",", ":")).encode()) == CREATED


def test_the_order_of_keys_and_white_space_do_not_matter() -> None:
    for record in RECORDS:
        body = json.loads(encode_record(record))
        loose = json.dumps(dict(reversed(body.items())), indent=1).encode()
        assert decode_record(loose) == record


def test_the_tag_comes_first() -> None:
    assert encode_record(RECORDS[3]).startswith(b'{"type":"StreamDeleted","version":1,"name":"s",')


def test_a_set_of_voters_comes_back() -> None:
    voters = VoterSet.of([Voter(ONE, "h", 1, ID), Voter(NodeId(2), "h", 2)])
    assert VotersChanged.of(voters).voter_set == voters


def changed(**fields: object) -> bytes:
    return json.dumps({**json.loads(encode_record(RECORDS[3])), **fields}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"7",
        b"{}",
        b'{"type":"StreamDeleted"}',
        changed(type="StreamForgotten"),
        changed(type=["StreamDeleted"]),
        changed(version=2),
        changed(version="1"),
        changed(extra=1),
        encode_record(RECORDS[3]) + b"}",
        encode_record(RECORDS[3])[:-9],
        b'{"type":"StreamDeleted","version":1,',
        changed(stream_id="x"),
        encode_record(RECORDS[2]).replace(b'"s"', b'"a b"'),
    ],
)
def test_what_is_not_ours_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptData):
        decode_record(data)
