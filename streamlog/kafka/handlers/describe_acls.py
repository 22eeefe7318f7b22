"""DescribeAcls (29), versions 1 to 3: the access rules that a filter matches (KIP-140, KIP-290).

Those of the cluster's metadata come first, then those of this node's own file. The protocol has no
place for where a rule stands: it is told beside them, where a message is allowed.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from streamlog.acl.filters import found
from streamlog.acl.rules import Rule
from streamlog.errors import StreamlogError
from streamlog.kafka.configs.acl_codec import file_note, read_filter, shown_entry, shown_resource
from streamlog.kafka.context import Context
from streamlog.kafka.read_barrier import newest_image
from streamlog.kafka.refusal import told
from streamlog.wire.control import Message


async def handle(request: Message, _version: int, context: Context) -> Message:
    try:
        wanted = read_filter(request)
    except StreamlogError as error:
        return {**told(error), "resources": []}
    rules = (await newest_image(context)).rules
    note, of_file = None, list[Rule]()
    authority = context.authority
    if authority is not None and authority.file is not None:
        of_file = found(authority.file_rules, wanted)
    resources = _by_resource(of_file)
    if resources:
        note = file_note(len(resources))
    return {
        "error_code": ErrorCode.none,
        "error_message": note,
        "resources": [*_by_resource(found(rules, wanted)), *resources],
    }


def _by_resource(rules: list[Rule]) -> list[dict[str, Any]]:
    resources: dict[tuple[Any, ...], dict[str, Any]] = {}
    for rule in rules:
        shown = shown_resource(rule)
        resource = resources.setdefault(tuple(shown.values()), {**shown, "acls": []})
        resource["acls"].append(shown_entry(rule))
    return list(resources.values())
