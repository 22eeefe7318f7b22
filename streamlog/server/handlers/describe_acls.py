"""DescribeAcls (29), versions 1 to 3: the access rules that a filter matches (KIP-140, KIP-290).

Those of the cluster's metadata: what stands in a node's own file is not shown.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from streamlog.access.filters import found
from streamlog.errors import StreamlogError
from streamlog.server.acl_form import read_filter, shown_entry, shown_resource
from streamlog.server.context import Context
from streamlog.server.newest import newest_image
from streamlog.server.refusal import told
from streamlog.wire.control import Message


async def handle(request: Message, _version: int, context: Context) -> Message:
    try:
        wanted = read_filter(request)
    except StreamlogError as error:
        return {**told(error), "resources": []}
    resources: dict[tuple[Any, ...], dict[str, Any]] = {}
    for rule in found((await newest_image(context)).rules, wanted):
        shown = shown_resource(rule)
        resource = resources.setdefault(tuple(shown.values()), {**shown, "acls": []})
        resource["acls"].append(shown_entry(rule))
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "resources": list(resources.values()),
    }
