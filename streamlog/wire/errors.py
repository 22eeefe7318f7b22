"""Kafka's error codes and ours: one table, read one way by the server, the other by the client."""

from typing import Final

from streamlog import errors
from streamlog.errors import StreamlogError
from streamlog.wire.error_codes import ErrorCode

_CODES: Final[tuple[tuple[type[StreamlogError], ErrorCode], ...]] = (
    (errors.OffsetMovedToTieredStorage, ErrorCode.offset_moved_to_tiered_storage),
    (errors.OffsetOutOfRange, ErrorCode.offset_out_of_range),
    (errors.CorruptBatch, ErrorCode.corrupt_message),
    (errors.CorruptData, ErrorCode.kafka_storage_error),
    (errors.StreamNotFound, ErrorCode.unknown_topic_or_partition),
    (errors.PartitionNotFound, ErrorCode.unknown_topic_or_partition),
    (errors.UnknownTopicId, ErrorCode.unknown_topic_id),
    (errors.InconsistentTopicId, ErrorCode.inconsistent_topic_id),
    (errors.NotCoordinator, ErrorCode.not_coordinator),
    (errors.CoordinatorLoading, ErrorCode.coordinator_load_in_progress),
    (errors.CoordinatorUnavailable, ErrorCode.coordinator_not_available),
    (errors.NotLeader, ErrorCode.not_leader_or_follower),
    (errors.RequestTimedOut, ErrorCode.request_timed_out),
    (errors.RecordTooLarge, ErrorCode.message_too_large),
    (errors.InvalidRecord, ErrorCode.invalid_record),
    (errors.InvalidTimestamp, ErrorCode.invalid_timestamp),
    (errors.InvalidRequiredAcks, ErrorCode.invalid_required_acks),
    (errors.UnsupportedVersion, ErrorCode.unsupported_version),
    (errors.OutOfOrderSequence, ErrorCode.out_of_order_sequence_number),
    (errors.InvalidProducerEpoch, ErrorCode.invalid_producer_epoch),
    (errors.UnknownProducer, ErrorCode.unknown_producer_id),
    (errors.InvalidTransactionState, ErrorCode.invalid_txn_state),
    (errors.CoordinatorFenced, ErrorCode.transaction_coordinator_fenced),
    (errors.NoTransactions, ErrorCode.transactional_id_authorization_failed),
    (errors.InvalidStreamName, ErrorCode.invalid_topic_exception),
    (errors.InvalidGroupName, ErrorCode.invalid_group_id),
    (errors.StreamExists, ErrorCode.topic_already_exists),
    (errors.InvalidSubject, ErrorCode.invalid_config),
    (errors.InvalidStreamConfig, ErrorCode.invalid_config),
    (errors.StreamFull, ErrorCode.policy_violation),
    (errors.StreamStandsStill, ErrorCode.policy_violation),
    (errors.StorageFull, ErrorCode.kafka_storage_error),
    (errors.StorageFailed, ErrorCode.kafka_storage_error),
    (errors.ObjectStoreUnavailable, ErrorCode.kafka_storage_error),
    (errors.FencedLeaderEpoch, ErrorCode.fenced_leader_epoch),
    (errors.UnknownLeaderEpoch, ErrorCode.unknown_leader_epoch),
    (errors.NotEnoughReplicas, ErrorCode.not_enough_replicas),
    (errors.NotEnoughReplicasAfterAppend, ErrorCode.not_enough_replicas_after_append),
    (errors.OffsetNotAvailable, ErrorCode.offset_not_available),
    (errors.NoController, ErrorCode.not_controller),
    (errors.NodeIdTaken, ErrorCode.duplicate_broker_registration),
    (errors.StaleNode, ErrorCode.stale_broker_epoch),
    (errors.StaleReplica, ErrorCode.ineligible_replica),
    (errors.UnknownReplica, ErrorCode.replica_not_available),
    (errors.ReplicaInSync, ErrorCode.replica_not_available),
    (errors.NodeNotFound, ErrorCode.broker_id_not_registered),
    (errors.OtherCluster, ErrorCode.inconsistent_cluster_id),
    (errors.UnsupportedMechanism, ErrorCode.unsupported_sasl_mechanism),
    (errors.GroupNotFound, ErrorCode.group_id_not_found),
    (errors.TransactionNotFound, ErrorCode.transactional_id_not_found),
    (errors.GroupSubscribed, ErrorCode.group_subscribed_to_topic),
    (errors.GroupNotEmpty, ErrorCode.non_empty_group),
    (errors.InvalidRecordState, ErrorCode.invalid_record_state),
    (errors.FencedShareState, ErrorCode.fenced_state_epoch),
    (errors.StalePartition, ErrorCode.invalid_update_version),
    (errors.AuthenticationFailed, ErrorCode.sasl_authentication_failed),
    (errors.TopicForbidden, ErrorCode.topic_authorization_failed),
    (errors.GroupForbidden, ErrorCode.group_authorization_failed),
    (errors.TransactionalIdForbidden, ErrorCode.transactional_id_authorization_failed),
    (errors.NotAuthorized, ErrorCode.cluster_authorization_failed),
    (errors.Overloaded, ErrorCode.throttling_quota_exceeded),
    (errors.NodeUnreachable, ErrorCode.network_exception),
    (errors.Unavailable, ErrorCode.leader_not_available),
    (errors.InvalidRequest, ErrorCode.invalid_request),
    (StreamlogError, ErrorCode.unknown_server_error),
)


def code_of(error: StreamlogError) -> ErrorCode:
    """The code of the nearest class in the table; the last row takes what no other does."""
    return next(code for kind, code in _CODES if isinstance(error, kind))


def code_named(name: str) -> ErrorCode:
    """The code of the error class of this name, as ``code_of`` has it."""
    kind = _NAMED.get(name, StreamlogError)
    return next(code for known, code in _CODES if issubclass(kind, known))


def error_of(code: int, about: str) -> StreamlogError:
    """The error that a node's answer stands for."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return StreamlogError(f"{about}: error {code}")
    text = f"{about}: {known.name.replace('_', ' ')} ({code})"
    if known is ErrorCode.leader_not_available:
        return errors.NotLeader(text)
    if known in (ErrorCode.offset_out_of_range, ErrorCode.offset_moved_to_tiered_storage):
        return errors.InvalidRequest(text)  # a code alone does not tell the range
    for kind, candidate in _CODES:
        if candidate is known:
            return kind(text)
    return errors.Unavailable(text) if known.retriable else StreamlogError(text)


_NAMED: Final = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, StreamlogError)
}


def error_named(name: str, text: str) -> StreamlogError:
    """The error that the answer to a command names by its class; one we do not know is plain."""
    kind = _NAMED.get(name, StreamlogError)
    if kind.__init__ is StreamlogError.__init__:
        return kind(text)
    # It wants more than a text; the nearest that does not still tells whose fault it is.
    return (
        errors.InvalidRequest(text)
        if issubclass(kind, errors.InvalidRequest)
        else (StreamlogError(text))
    )


def check(code: int, about: str) -> None:
    """Raises what an answer's error code stands for, if it is one."""
    if code != ErrorCode.none:
        raise error_of(code, about)
