from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Final

from kio.schema.errors import ErrorCode

from streamlog.fairness import stepwise
from streamlog.kafka.auth import audit_actions, authorization
from streamlog.kafka.auth.peer import Peer
from streamlog.kafka.context import Context
from streamlog.kafka.handlers import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    api_versions,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_quorum,
    describe_topic_partitions,
    describe_user_scram_credentials,
    elect_leaders,
    envelope,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    quorum,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
)
from streamlog.kafka.net.deferred_response import DeferredResponse
from streamlog.kafka.net.request_wait import RequestWait
from streamlog.kafka.net.response import Response
from streamlog.kafka.quotas import UNCOUNTED, Charge
from streamlog.kafka.requester import Requester
from streamlog.wire import control, registry
from streamlog.wire.cursor import ELEMENTS_MAX, Cursor
from streamlog.wire.framing import frame
from streamlog.wire.header import RequestHeader, encode_response_header, read_request_header

_PRODUCE_KEY: Final = registry.PRODUCE.to_bytes(2, "big")

Handler = Callable[[control.Message, int, Context], Awaitable[control.Message]]
WaitingHandler = Callable[[control.Message, int, Context, Requester], Awaitable[control.Message]]
LoginHandler = Callable[[control.Message, int, Peer, RequestWait], Awaitable[control.Message]]

_HANDLERS: Final[dict[int, Handler]] = {
    registry.LIST_OFFSETS: list_offsets.handle,
    registry.METADATA: metadata.handle,
    registry.FIND_COORDINATOR: find_coordinator.handle,
    registry.HEARTBEAT: heartbeat.handle,
    registry.DESCRIBE_GROUPS: describe_groups.handle,
    registry.LIST_GROUPS: list_groups.handle,
    registry.API_VERSIONS: api_versions.handle,
    registry.CREATE_TOPICS: create_topics.handle,
    registry.DELETE_TOPICS: delete_topics.handle,
    registry.INIT_PRODUCER_ID: init_producer_id.handle,
    registry.DELETE_RECORDS: delete_records.handle,
    registry.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.handle,
    registry.DESCRIBE_ACLS: describe_acls.handle,
    registry.CREATE_ACLS: create_acls.handle,
    registry.DELETE_ACLS: delete_acls.handle,
    registry.DESCRIBE_CONFIGS: describe_configs.handle,
    registry.ALTER_CONFIGS: alter_configs.handle,
    registry.DESCRIBE_LOG_DIRS: describe_log_dirs.handle,
    registry.CREATE_PARTITIONS: create_partitions.handle,
    registry.ELECT_LEADERS: elect_leaders.handle,
    registry.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.handle,
    registry.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments.handle,
    registry.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments.handle,
    registry.DESCRIBE_CLIENT_QUOTAS: describe_client_quotas.handle,
    registry.ALTER_CLIENT_QUOTAS: alter_client_quotas.handle,
    registry.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_user_scram_credentials.handle,
    registry.ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials.handle,
    registry.VOTE: quorum.vote,
    registry.BEGIN_QUORUM_EPOCH: quorum.begin_epoch,
    registry.END_QUORUM_EPOCH: quorum.end_epoch,
    registry.DESCRIBE_QUORUM: describe_quorum.handle,
    registry.ENVELOPE: envelope.handle,
    registry.FETCH_SNAPSHOT: quorum.fetch_snapshot,
    registry.DESCRIBE_CLUSTER: describe_cluster.handle,
    registry.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions.handle,
}

_WAITING_HANDLERS: Final[dict[int, WaitingHandler]] = {
    registry.OFFSET_COMMIT: offset_commit.handle,
    registry.OFFSET_FETCH: offset_fetch.handle,
    registry.JOIN_GROUP: join_group.handle,
    registry.LEAVE_GROUP: leave_group.handle,
    registry.SYNC_GROUP: sync_group.handle,
    registry.DELETE_GROUPS: delete_groups.handle,
    registry.OFFSET_DELETE: offset_delete.handle,
}
"""Their answers wait for others than this node, and as long as it takes."""


_LOGIN_HANDLERS: Final[dict[int, LoginHandler]] = {
    registry.SASL_HANDSHAKE: sasl_handshake.handle,
    registry.SASL_AUTHENTICATE: sasl_authenticate.handle,
}
"""They change who the peer is."""


def is_produce(request: bytes) -> bool:
    """Its answer may come late, and those behind it are looked at meanwhile."""
    return request[:2] == _PRODUCE_KEY


async def answer(
    request: bytes,
    peer: Peer,
    poll: RequestWait,
    threads: Executor,
    *,
    weigh: Callable[[int], None] | None = None,
) -> Response | DeferredResponse | None:
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
    context.metrics.requests[api.name].inc()
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
        cursor.limit(control.ELEMENTS_MAX)
    if api.key == registry.FETCH:
        return await fetch.handle(cursor, version, response_header, context, poll, charge=charge)
    if api.key == registry.PRODUCE:
        produced = await produce.handle(cursor, version, response_header, context, threads)
        return produced if charge is None else _charged(produced, len(request), charge)
    if len(request) <= control.AT_ONCE_BYTES:
        asked = control.read_request(cursor, api, version)
    else:
        asked = await stepwise(control.read_request_in_steps(cursor, api, version))
    values = await _values(header, asked, peer, poll)
    if api.key in audit_actions.ADMINISTRATIVE:
        audit_actions.tell(api, asked, values, context)
    throttle_ms = 0
    if charge is not None and api.key not in UNCOUNTED:
        charge.request()
        throttle_ms = charge.throttle_ms
        values = {**values, "throttle_time": throttle_ms}
    encoded = await stepwise(control.encode_response_in_steps(api, version, values))
    answered = [frame(response_header, encoded)]
    return Response(answered, throttle_ms=throttle_ms, is_last=peer.is_refused)


async def _values(
    header: RequestHeader, asked: control.Message, peer: Peer, poll: RequestWait
) -> control.Message:
    """What the handler answers, if it is asked."""
    key, version, context = header.api.key, header.version, peer.context
    if context.access is not None:
        refused = authorization.refusal(key, header.api.name, asked, context.access)
        if refused is not None:
            return refused
    if key in _LOGIN_HANDLERS:
        return await _LOGIN_HANDLERS[key](asked, version, peer, poll)
    if key in _WAITING_HANDLERS:
        asker = Requester(header.client_id or "", peer.host, poll)
        return await _WAITING_HANDLERS[key](asked, version, context, asker)
    return await _HANDLERS[key](asked, version, context)


def _charged(
    produced: DeferredResponse | None, size_bytes: int, charge: Charge
) -> Response | DeferredResponse | None:
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
    return Response([frame(response_header, control.encode_response(header.api, 0, values))])
