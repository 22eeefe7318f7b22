"""Which right each API needs, before its handler sees a request. Closed: what is not in the table.

Where authentication is off, none of this is asked. Rights on single streams and groups are looked
at by the handlers, which answer for each of them; they are ``IN_HANDLER`` here.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from streamlog.acl.rules import Operation
from streamlog.authz.permissions import Permissions
from streamlog.errors import ClusterForbidden, UnsupportedVersion
from streamlog.kafka.refusal import told
from streamlog.metadata.commands import Command
from streamlog.wire import registry
from streamlog.wire.api_messages import Message


class Check(Protocol):
    """Raises ClusterForbidden."""

    def __call__(self, access: Permissions, api: str) -> None: ...


Refusal = Callable[[Message, dict[str, Any]], Message]
"""The answer to a request, all of it refused: with the fields that tell of the error."""


class Gate(NamedTuple):
    """What is asked before the handler is; ``refusal`` is the answer to who does not pass."""

    check: Check
    refusal: Refusal


def _pass(access: Permissions, api: str) -> None:
    pass


def _node(access: Permissions, api: str) -> None:
    access.refuse_to_clients(api)


def _cluster(operation: Operation) -> Check:
    def check(access: Permissions, api: str) -> None:
        access.check_cluster(operation)

    return check


def _top(**rest: object) -> Refusal:
    return lambda _, error: {**error, **rest}


def _each(name: str, items: str, **rest: object) -> Refusal:
    """One result for each item of the request."""
    return lambda request, error: {name: [{**error, **rest} for _ in request[items]]}


def _elections(request: Message, error: dict[str, Any]) -> Message:
    """Version 0 has no error but those of partitions."""
    results = [
        {
            "topic": topic["topic"],
            "partition_result": [{"partition_id": n, **error} for n in topic["partitions"]],
        }
        for topic in request["topic_partitions"] or ()
    ]
    return {"error_code": error["error_code"], "replica_election_results": results}


def _quotas(request: Message, error: dict[str, Any]) -> Message:
    return {"entries": [{**error, "entity": it["entity"]} for it in request["entries"]]}


def _users(request: Message, error: dict[str, Any]) -> Message:
    names = dict.fromkeys(it["name"] for it in (*request["deletions"], *request["upsertions"]))
    return {"results": [{"user": name, **error} for name in names]}


def _markers(request: Message, error: dict[str, Any]) -> Message:
    """An error for each partition of each marker."""
    return {
        "markers": [
            {
                "producer_id": marker["producer_id"],
                "topics": [
                    {
                        "name": topic["name"],
                        "partitions": [
                            {"partition_index": n, **error} for n in topic["partition_indexes"]
                        ],
                    }
                    for topic in marker["topics"]
                ],
            }
            for marker in request["markers"]
        ]
    }


OPEN: Final = Gate(_pass, _top())
"""For any client."""
IN_HANDLER: Final = OPEN
"""Checked by the handler, or by the operation of ``control`` that it asks."""
_NODES: Final = Gate(_node, _top(topics=()))
_BEFORE_LOGIN: Final = {
    registry.SASL_HANDSHAKE: OPEN,
    registry.SASL_AUTHENTICATE: OPEN,
    registry.API_VERSIONS: OPEN,
}

GATES: Final[dict[int, Gate]] = {
    **_BEFORE_LOGIN,
    registry.PRODUCE: IN_HANDLER,
    registry.FETCH: IN_HANDLER,
    registry.LIST_OFFSETS: IN_HANDLER,
    registry.METADATA: IN_HANDLER,
    registry.OFFSET_COMMIT: IN_HANDLER,
    registry.OFFSET_FETCH: IN_HANDLER,
    registry.FIND_COORDINATOR: IN_HANDLER,
    registry.JOIN_GROUP: IN_HANDLER,
    registry.HEARTBEAT: IN_HANDLER,
    registry.LEAVE_GROUP: IN_HANDLER,
    registry.SYNC_GROUP: IN_HANDLER,
    registry.DESCRIBE_GROUPS: IN_HANDLER,
    registry.LIST_GROUPS: IN_HANDLER,
    registry.DELETE_GROUPS: IN_HANDLER,
    registry.CONSUMER_GROUP_HEARTBEAT: IN_HANDLER,
    registry.CONSUMER_GROUP_DESCRIBE: IN_HANDLER,
    registry.SHARE_GROUP_HEARTBEAT: IN_HANDLER,
    registry.SHARE_GROUP_DESCRIBE: IN_HANDLER,
    registry.SHARE_FETCH: IN_HANDLER,
    registry.SHARE_ACKNOWLEDGE: IN_HANDLER,
    registry.DESCRIBE_SHARE_GROUP_OFFSETS: IN_HANDLER,
    registry.ALTER_SHARE_GROUP_OFFSETS: IN_HANDLER,
    registry.DELETE_SHARE_GROUP_OFFSETS: IN_HANDLER,
    registry.OFFSET_DELETE: IN_HANDLER,
    registry.CREATE_TOPICS: IN_HANDLER,
    registry.DELETE_TOPICS: IN_HANDLER,
    registry.INIT_PRODUCER_ID: IN_HANDLER,
    registry.ADD_PARTITIONS_TO_TXN: IN_HANDLER,
    registry.ADD_OFFSETS_TO_TXN: IN_HANDLER,
    registry.END_TXN: IN_HANDLER,
    registry.TXN_OFFSET_COMMIT: IN_HANDLER,
    registry.LIST_TRANSACTIONS: IN_HANDLER,
    registry.DESCRIBE_TRANSACTIONS: IN_HANDLER,
    registry.DELETE_RECORDS: IN_HANDLER,
    registry.OFFSET_FOR_LEADER_EPOCH: IN_HANDLER,
    registry.DESCRIBE_PRODUCERS: IN_HANDLER,
    registry.DESCRIBE_CONFIGS: IN_HANDLER,
    registry.ALTER_CONFIGS: IN_HANDLER,
    registry.INCREMENTAL_ALTER_CONFIGS: IN_HANDLER,
    registry.CREATE_PARTITIONS: IN_HANDLER,
    registry.DESCRIBE_TOPIC_PARTITIONS: IN_HANDLER,
    registry.DESCRIBE_ACLS: IN_HANDLER,
    registry.LIST_PARTITION_REASSIGNMENTS: IN_HANDLER,
    registry.DESCRIBE_CLIENT_QUOTAS: IN_HANDLER,
    registry.DESCRIBE_LOG_DIRS: IN_HANDLER,
    registry.DESCRIBE_QUORUM: IN_HANDLER,
    registry.DESCRIBE_USER_SCRAM_CREDENTIALS: IN_HANDLER,
    registry.ENVELOPE: IN_HANDLER,
    registry.DESCRIBE_CLUSTER: OPEN,
    registry.CREATE_ACLS: Gate(_cluster(Operation.ALTER), _each("results", "creations")),
    registry.DELETE_ACLS: Gate(
        _cluster(Operation.ALTER), _each("filter_results", "filters", matching_acls=())
    ),
    registry.ELECT_LEADERS: Gate(_cluster(Operation.ALTER), _elections),
    registry.ALTER_PARTITION_REASSIGNMENTS: Gate(_cluster(Operation.ALTER), _top(responses=())),
    registry.ALTER_CLIENT_QUOTAS: Gate(_cluster(Operation.ALTER_CONFIGS), _quotas),
    registry.ALTER_USER_SCRAM_CREDENTIALS: Gate(_cluster(Operation.ALTER), _users),
    registry.VOTE: _NODES,
    registry.BEGIN_QUORUM_EPOCH: _NODES,
    registry.END_QUORUM_EPOCH: _NODES,
    registry.FETCH_SNAPSHOT: _NODES,
    registry.WRITE_TXN_MARKERS: Gate(_node, _markers),
}
"""By the API's key; one for each API that there is."""


def refusal(key: int, name: str, request: Message, access: Permissions) -> Message | None:
    """The answer to who may not ask that; None: go on. Raises UnsupportedVersion for what has no
    gate, which closes the connection.
    """
    gate = GATES.get(key)
    if gate is None:
        raise UnsupportedVersion(f"{name} is not offered where clients have to log in")
    try:
        gate.check(access, name)
    except ClusterForbidden as error:
        return gate.refusal(request, told(error))
    return None


def check_command(command: Command, access: Permissions) -> None:
    """Clients ask for operations of ``control``, by their names. Raises ClusterForbidden."""
    access.refuse_to_clients(f"Envelope of {type(command).__name__}")
