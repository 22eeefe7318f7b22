"""ListGroups (16), versions 0 to 5: the groups that this node coordinates; ask every node.

v4  only those in certain states (KIP-518)
v5  only those of certain types (KIP-848): all here are ``classic``
"""

from typing import Final

from kio.schema.errors import ErrorCode

from streamlog.acl.rules import Operation, ResourceType
from streamlog.groups.coordinator import Coordinator
from streamlog.kafka.context import Context
from streamlog.wire.control import Message

CLASSIC: Final = "classic"


async def handle(request: Message, _version: int, context: Context) -> Message:
    states = {it.casefold() for it in request.get("states_filter", ())}
    types = {it.casefold() for it in request.get("types_filter", ())}
    asked = list(context.groups.coordinators())
    is_loading = ErrorCode.coordinator_load_in_progress in asked
    groups = [
        {
            "group_id": group.group,
            "protocol_type": group.protocol_type,
            "group_state": group.state,
            "group_type": CLASSIC,
        }
        for coordinator in asked
        if isinstance(coordinator, Coordinator)
        for group in coordinator.listed()
        if (not states or group.state.casefold() in states)
        and (not types or CLASSIC in types)
        and _may_list(group.group, context)
    ]
    error = ErrorCode.coordinator_load_in_progress if is_loading else ErrorCode.none
    return {"error_code": error, "groups": groups}


def _may_list(group: str, context: Context) -> bool:
    """Whoever may not know of a group is not told of it."""
    access, describe = context.access, Operation.DESCRIBE
    return (
        access is None
        or access.allows_cluster(describe)
        or access.allows(describe, ResourceType.GROUP, group)
    )
