from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Final

from streamlog.fairness import stepwise
from streamlog.kafka.auth import audit_actions, authorization
from streamlog.kafka.auth.peer import Peer
from streamlog.kafka.context import Context, Requester
from streamlog.kafka.handlers import (
    api_versions,
    configs,
    coordinators,
    fetch,
    log_offsets,
    metadata,
    produce,
    quorum,
    replicas,
    topics,
    transactions,
)
from streamlog.kafka.handlers.groups import (
    classic_groups,
    consumer_groups,
    offsets,
    share_fetch,
    share_groups,
)
from streamlog.kafka.handlers.produce import DelayedProduce, DelayedSingleProduce, ProduceTargets
from streamlog.kafka.handlers.security import acls, client_quotas, sasl, scram_credentials
from streamlog.kafka.net.channel import RequestWait
from streamlog.kafka.net.response import Response
from streamlog.kafka.quotas import UNCOUNTED, RequestQuota
from streamlog.wire import api_messages, registry
from streamlog.wire.cursor import ELEMENTS_MAX, Cursor
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.framing import frame
from streamlog.wire.header import RequestHeader, encode_response_header, read_request_header

PRODUCE_KEY: Final = registry.PRODUCE.to_bytes(2, "big")

Handler = Callable[[api_messages.Message, int, Context], Awaitable[api_messages.Message]]
WaitingHandler = Callable[
    [api_messages.Message, int, Context, Requester], Awaitable[api_messages.Message]
]
LoginHandler = Callable[
    [api_messages.Message, int, Peer, RequestWait], Awaitable[api_messages.Message]
]

_HANDLERS: Final[dict[int, Handler]] = {
    registry.LIST_OFFSETS: log_offsets.list_offsets,
    registry.METADATA: metadata.metadata,
    registry.FIND_COORDINATOR: coordinators.find_coordinator,
    registry.HEARTBEAT: classic_groups.heartbeat,
    registry.DESCRIBE_GROUPS: classic_groups.describe_groups,
    registry.LIST_GROUPS: classic_groups.list_groups,
    registry.DELETE_GROUPS: classic_groups.delete_groups,
    registry.CONSUMER_GROUP_DESCRIBE: consumer_groups.consumer_group_describe,
    registry.OFFSET_DELETE: offsets.offset_delete,
    registry.API_VERSIONS: api_versions.api_versions,
    registry.CREATE_TOPICS: topics.create_topics,
    registry.DELETE_TOPICS: topics.delete_topics,
    registry.DELETE_RECORDS: topics.delete_records,
    registry.OFFSET_FOR_LEADER_EPOCH: log_offsets.offset_for_leader_epoch,
    registry.DESCRIBE_ACLS: acls.describe_acls,
    registry.CREATE_ACLS: acls.create_acls,
    registry.DELETE_ACLS: acls.delete_acls,
    registry.DESCRIBE_CONFIGS: configs.describe_configs,
    registry.ALTER_CONFIGS: configs.alter_configs,
    registry.DESCRIBE_LOG_DIRS: replicas.describe_log_dirs,
    registry.CREATE_PARTITIONS: topics.create_partitions,
    registry.ELECT_LEADERS: replicas.elect_leaders,
    registry.INCREMENTAL_ALTER_CONFIGS: configs.incremental_alter_configs,
    registry.ALTER_PARTITION_REASSIGNMENTS: replicas.alter_partition_reassignments,
    registry.LIST_PARTITION_REASSIGNMENTS: replicas.list_partition_reassignments,
    registry.DESCRIBE_CLIENT_QUOTAS: client_quotas.describe_client_quotas,
    registry.ALTER_CLIENT_QUOTAS: client_quotas.alter_client_quotas,
    registry.DESCRIBE_USER_SCRAM_CREDENTIALS: scram_credentials.describe_user_scram_credentials,
    registry.ALTER_USER_SCRAM_CREDENTIALS: scram_credentials.alter_user_scram_credentials,
    registry.VOTE: quorum.vote,
    registry.BEGIN_QUORUM_EPOCH: quorum.begin_epoch,
    registry.END_QUORUM_EPOCH: quorum.end_epoch,
    registry.DESCRIBE_QUORUM: quorum.describe_quorum,
    registry.ENVELOPE: quorum.envelope,
    registry.FETCH_SNAPSHOT: quorum.fetch_snapshot,
    registry.DESCRIBE_PRODUCERS: transactions.describe_producers,
    registry.WRITE_TXN_MARKERS: transactions.write_txn_markers,
    registry.DESCRIBE_CLUSTER: metadata.describe_cluster,
    registry.DESCRIBE_TOPIC_PARTITIONS: metadata.describe_topic_partitions,
    registry.SHARE_GROUP_DESCRIBE: share_groups.share_group_describe,
    registry.DESCRIBE_SHARE_GROUP_OFFSETS: share_groups.describe_share_group_offsets,
    registry.ALTER_SHARE_GROUP_OFFSETS: share_groups.alter_share_group_offsets,
    registry.DELETE_SHARE_GROUP_OFFSETS: share_groups.delete_share_group_offsets,
}

_WAITING_HANDLERS: Final[dict[int, WaitingHandler]] = {
    registry.OFFSET_COMMIT: offsets.offset_commit,
    registry.TXN_OFFSET_COMMIT: offsets.txn_offset_commit,
    registry.OFFSET_FETCH: offsets.offset_fetch,
    registry.CONSUMER_GROUP_HEARTBEAT: consumer_groups.consumer_group_heartbeat,
    registry.INIT_PRODUCER_ID: transactions.init_producer_id,
    registry.ADD_PARTITIONS_TO_TXN: transactions.add_partitions_to_txn,
    registry.ADD_OFFSETS_TO_TXN: transactions.add_offsets_to_txn,
    registry.END_TXN: transactions.end_txn,
    registry.LIST_TRANSACTIONS: transactions.list_transactions,
    registry.DESCRIBE_TRANSACTIONS: transactions.describe_transactions,
    registry.JOIN_GROUP: classic_groups.join_group,
    registry.LEAVE_GROUP: classic_groups.leave_group,
    registry.SYNC_GROUP: classic_groups.sync_group,
    registry.SHARE_GROUP_HEARTBEAT: share_groups.share_group_heartbeat,
    registry.SHARE_FETCH: share_fetch.share_fetch,
    registry.SHARE_ACKNOWLEDGE: share_fetch.share_acknowledge,
}
"""Their answers wait for others than this node, and as long as it takes."""


_LOGIN_HANDLERS: Final[dict[int, LoginHandler]] = {
    registry.SASL_HANDSHAKE: sasl.sasl_handshake,
    registry.SASL_AUTHENTICATE: sasl.sasl_authenticate,
}
"""They change who the peer is."""


def is_produce(request: bytes) -> bool:
    """Its answer may come late, and those behind it are looked at meanwhile."""
    return request[:2] == PRODUCE_KEY


def produce_single(
    request: bytes, peer: Peer, targets: ProduceTargets
) -> DelayedSingleProduce | None:
    """What ``answer`` gives to a Produce for one partition, without waiting for anything. None, and nothing was
    done: ``answer`` is to be asked. Raises LoginRequired.
    """
    if peer.is_guarded:
        peer.admit(registry.APIS[registry.PRODUCE])
    return produce.produce_single(request, targets, peer.context)


async def answer(
    request: bytes,
    peer: Peer,
    poll: RequestWait,
    threads: Executor,
    *,
    weigh: Callable[[int], None] | None = None,
) -> Response | DelayedProduce | None:
    """The answer to one frame; None where none is wanted. ``weigh``: see ``wire.cursor.Cursor``.
    Raises ProtocolViolation for what no answer fits, and what ``weigh`` does.
    """
    cursor = Cursor(request, 0, ELEMENTS_MAX, weigh)
    header = read_request_header(cursor)
    api, version = header.api, header.version
    client_id = header.client_id or ""
    context = peer.context
    if client_id != context.session.client_id:
        context = peer.call(client_id)
    context.metrics.requests[api.name].count += 1
    if peer.is_guarded:
        peer.admit(api)
    if version > api.version_max:
        return _newer_api_versions(header)
    charge = None
    if quotas := context.metadata.image.quotas:
        charge = context.throttles.charge(
            client_id, quotas, context.settings.quota_burst_ms, context.metrics
        )
    response_header = encode_response_header(api, version, header.correlation_id)
    if context.access is not None:  # only a node has reason to name more
        cursor.limit(api_messages.ELEMENTS_MAX)
    if api.key == registry.FETCH:
        return await fetch.fetch(cursor, version, response_header, context, poll, charge=charge)
    if api.key == registry.PRODUCE:
        produced = await produce.produce(cursor, version, response_header, context, threads)
        return produced if charge is None else _charged(produced, len(request), charge)
    if len(request) <= api_messages.AT_ONCE_BYTES:
        asked = api_messages.read_request(cursor, api, version)
    else:
        asked = await stepwise(api_messages.read_request_in_steps(cursor, api, version))
    values = await _values(header, asked, peer, poll)
    if api.key in audit_actions.ADMINISTRATIVE:
        audit_actions.tell(api, asked, values, context)
    throttle_ms = 0
    if charge is not None and api.key not in UNCOUNTED:
        charge.request()
        throttle_ms = charge.throttle_ms
        values = {**values, "throttle_time": throttle_ms}
    encoded = await stepwise(api_messages.encode_response_in_steps(api, version, values))
    if charge is not None and api.key == registry.SHARE_FETCH:
        charge.fetched(len(encoded))  # the client is told so by its next answer
    answered = [frame(response_header, encoded)]
    return Response(answered, throttle_ms=throttle_ms, is_last=peer.is_refused)


async def _values(
    header: RequestHeader, asked: api_messages.Message, peer: Peer, poll: RequestWait
) -> api_messages.Message:
    """What the handler answers, if it is asked."""
    key, version, context = header.api.key, header.version, peer.context
    if context.access is not None:
        refused = authorization.refusal(key, header.api.name, asked, context.access)
        if refused is not None:
            return refused
    if key in _LOGIN_HANDLERS:
        return await _LOGIN_HANDLERS[key](asked, version, peer, poll)
    if key in _WAITING_HANDLERS:
        asker = Requester(header.client_id or "", peer.host, poll, peer.at_end)
        return await _WAITING_HANDLERS[key](asked, version, context, asker)
    return await _HANDLERS[key](asked, version, context)


def _charged(
    produced: DelayedProduce | None, size_bytes: int, charge: RequestQuota
) -> Response | DelayedProduce | None:
    """Who wants no answer is not told, and is not read from either."""
    charge.request()
    charge.produced(size_bytes)
    if produced is None and charge.throttle_ms:
        return Response([b""], throttle_ms=charge.throttle_ms)
    if produced is not None:
        produced.throttle_ms = charge.throttle_ms
    return produced


def _newer_api_versions(header: RequestHeader) -> Response:
    """The client speaks a newer ApiVersions: the oldest form tells it so, and what we offer."""
    response_header = encode_response_header(header.api, 0, header.correlation_id)
    values = api_versions.offered(ErrorCode.unsupported_version)
    return Response([frame(response_header, api_messages.encode_response(header.api, 0, values))])
