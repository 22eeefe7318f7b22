"""Which APIs this node speaks, in which versions."""

from typing import Final, NamedTuple

from streamlog.errors import UnsupportedVersion

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
DELETE_RECORDS: Final = 21
INIT_PRODUCER_ID: Final = 22
OFFSET_FOR_LEADER_EPOCH: Final = 23
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
WRITE_TXN_MARKERS: Final = 27
TXN_OFFSET_COMMIT: Final = 28
DESCRIBE_ACLS: Final = 29
CREATE_ACLS: Final = 30
DELETE_ACLS: Final = 31
DESCRIBE_CONFIGS: Final = 32
ALTER_CONFIGS: Final = 33
DESCRIBE_LOG_DIRS: Final = 35
SASL_AUTHENTICATE: Final = 36
CREATE_PARTITIONS: Final = 37
DELETE_GROUPS: Final = 42
ELECT_LEADERS: Final = 43
INCREMENTAL_ALTER_CONFIGS: Final = 44
ALTER_PARTITION_REASSIGNMENTS: Final = 45
LIST_PARTITION_REASSIGNMENTS: Final = 46
OFFSET_DELETE: Final = 47
DESCRIBE_CLIENT_QUOTAS: Final = 48
ALTER_CLIENT_QUOTAS: Final = 49
DESCRIBE_USER_SCRAM_CREDENTIALS: Final = 50
ALTER_USER_SCRAM_CREDENTIALS: Final = 51
VOTE: Final = 52
BEGIN_QUORUM_EPOCH: Final = 53
END_QUORUM_EPOCH: Final = 54
DESCRIBE_QUORUM: Final = 55
ENVELOPE: Final = 58
FETCH_SNAPSHOT: Final = 59
DESCRIBE_CLUSTER: Final = 60
DESCRIBE_PRODUCERS: Final = 61
DESCRIBE_TRANSACTIONS: Final = 65
LIST_TRANSACTIONS: Final = 66
CONSUMER_GROUP_HEARTBEAT: Final = 68
CONSUMER_GROUP_DESCRIBE: Final = 69
DESCRIBE_TOPIC_PARTITIONS: Final = 75
SHARE_GROUP_HEARTBEAT: Final = 76
SHARE_GROUP_DESCRIBE: Final = 77
SHARE_FETCH: Final = 78
SHARE_ACKNOWLEDGE: Final = 79
DESCRIBE_SHARE_GROUP_OFFSETS: Final = 90
ALTER_SHARE_GROUP_OFFSETS: Final = 91
DELETE_SHARE_GROUP_OFFSETS: Final = 92


class Api(NamedTuple):
    """One API key with the range of versions offered; both ends are inclusive, as on the wire."""

    key: int
    name: str
    version_min: int
    version_max: int
    flexible_from: int

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_from


APIS: Final[dict[int, Api]] = {
    api.key: api
    for api in (
        Api(PRODUCE, "Produce", 0, 13, 9),  # 0 to 2 are refused: see its handler
        Api(FETCH, "Fetch", 4, 18, 12),
        Api(LIST_OFFSETS, "ListOffsets", 1, 11, 6),
        Api(METADATA, "Metadata", 0, 13, 9),
        Api(OFFSET_COMMIT, "OffsetCommit", 2, 10, 8),
        Api(OFFSET_FETCH, "OffsetFetch", 1, 10, 6),
        Api(FIND_COORDINATOR, "FindCoordinator", 0, 5, 3),
        Api(JOIN_GROUP, "JoinGroup", 0, 9, 6),
        Api(HEARTBEAT, "Heartbeat", 0, 4, 4),
        Api(LEAVE_GROUP, "LeaveGroup", 0, 5, 4),
        Api(SYNC_GROUP, "SyncGroup", 0, 5, 4),
        Api(DESCRIBE_GROUPS, "DescribeGroups", 0, 6, 5),
        Api(LIST_GROUPS, "ListGroups", 0, 5, 3),
        Api(DELETE_GROUPS, "DeleteGroups", 0, 2, 2),
        Api(OFFSET_DELETE, "OffsetDelete", 0, 0, 1),
        Api(SASL_HANDSHAKE, "SaslHandshake", 0, 1, 2),  # 0 is refused: see its handler
        Api(SASL_AUTHENTICATE, "SaslAuthenticate", 0, 2, 2),
        Api(API_VERSIONS, "ApiVersions", 0, 4, 3),
        Api(CREATE_TOPICS, "CreateTopics", 2, 7, 5),
        Api(DELETE_TOPICS, "DeleteTopics", 1, 6, 4),
        Api(INIT_PRODUCER_ID, "InitProducerId", 0, 6, 2),
        Api(ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn", 0, 3, 3),
        Api(ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn", 0, 4, 3),
        Api(END_TXN, "EndTxn", 0, 5, 3),
        Api(TXN_OFFSET_COMMIT, "TxnOffsetCommit", 0, 5, 3),
        Api(LIST_TRANSACTIONS, "ListTransactions", 0, 2, 0),
        Api(DESCRIBE_TRANSACTIONS, "DescribeTransactions", 0, 0, 0),
        Api(DELETE_RECORDS, "DeleteRecords", 0, 2, 2),
        Api(OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", 2, 4, 4),
        Api(DESCRIBE_ACLS, "DescribeAcls", 1, 3, 2),
        Api(CREATE_ACLS, "CreateAcls", 1, 3, 2),
        Api(DELETE_ACLS, "DeleteAcls", 1, 3, 2),
        Api(DESCRIBE_CONFIGS, "DescribeConfigs", 1, 4, 4),
        Api(ALTER_CONFIGS, "AlterConfigs", 0, 2, 2),
        Api(DESCRIBE_LOG_DIRS, "DescribeLogDirs", 1, 4, 2),
        Api(CREATE_PARTITIONS, "CreatePartitions", 0, 3, 2),
        Api(ELECT_LEADERS, "ElectLeaders", 0, 2, 2),
        Api(INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", 0, 1, 1),
        Api(ALTER_PARTITION_REASSIGNMENTS, "AlterPartitionReassignments", 0, 1, 0),
        Api(LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignments", 0, 0, 0),
        Api(DESCRIBE_CLIENT_QUOTAS, "DescribeClientQuotas", 0, 1, 1),
        Api(ALTER_CLIENT_QUOTAS, "AlterClientQuotas", 0, 1, 1),
        Api(DESCRIBE_USER_SCRAM_CREDENTIALS, "DescribeUserScramCredentials", 0, 0, 0),
        Api(ALTER_USER_SCRAM_CREDENTIALS, "AlterUserScramCredentials", 0, 0, 0),
        Api(DESCRIBE_CLUSTER, "DescribeCluster", 0, 2, 0),
        Api(DESCRIBE_PRODUCERS, "DescribeProducers", 0, 0, 0),
        Api(CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", 0, 1, 0),
        Api(CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", 0, 1, 0),
        Api(DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitions", 0, 0, 0),
        Api(SHARE_GROUP_HEARTBEAT, "ShareGroupHeartbeat", 1, 1, 0),
        Api(SHARE_GROUP_DESCRIBE, "ShareGroupDescribe", 1, 1, 0),
        Api(SHARE_FETCH, "ShareFetch", 1, 2, 0),
        Api(SHARE_ACKNOWLEDGE, "ShareAcknowledge", 1, 2, 0),
        Api(DESCRIBE_SHARE_GROUP_OFFSETS, "DescribeShareGroupOffsets", 0, 1, 0),
        Api(ALTER_SHARE_GROUP_OFFSETS, "AlterShareGroupOffsets", 0, 0, 0),
        Api(DELETE_SHARE_GROUP_OFFSETS, "DeleteShareGroupOffsets", 0, 0, 0),
        Api(VOTE, "Vote", 2, 2, 0),  # this and what follows: between nodes
        Api(BEGIN_QUORUM_EPOCH, "BeginQuorumEpoch", 1, 1, 1),
        Api(END_QUORUM_EPOCH, "EndQuorumEpoch", 1, 1, 1),
        Api(DESCRIBE_QUORUM, "DescribeQuorum", 0, 2, 0),
        Api(ENVELOPE, "Envelope", 0, 0, 0),
        Api(FETCH_SNAPSHOT, "FetchSnapshot", 1, 1, 0),
        Api(WRITE_TXN_MARKERS, "WriteTxnMarkers", 1, 2, 1),
    )
}


def find_api(key: int, version: int) -> Api:
    """The API of a request. Raises UnsupportedVersion for what is not offered."""
    api = APIS.get(key)
    if api is None:
        raise UnsupportedVersion(f"API key {key} is not offered")
    if not api.version_min <= version <= api.version_max:
        raise UnsupportedVersion(
            f"{api.name} version {version} is not offered, only"
            f" {api.version_min} to {api.version_max}"
        )
    return api
