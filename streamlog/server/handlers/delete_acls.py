"""DeleteAcls (31), versions 1 to 3: the access rules that filters match are no more (KIP-140).

Each filter is told what it matched. Rules in a node's own file are not touched.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from streamlog.access.filters import RuleFilter
from streamlog.access.rules import Rule
from streamlog.errors import StreamlogError
from streamlog.metadata.commands import RemoveAccessRules
from streamlog.server.acl_form import read_filter, shown_entry, shown_resource
from streamlog.server.context import Context
from streamlog.server.refusal import told
from streamlog.wire.control import Message


async def handle(request: Message, _version: int, context: Context) -> Message:
    wanted: list[RuleFilter | dict[str, Any]] = []
    for asked in request["filters"]:
        try:
            wanted.append(read_filter(asked))
        except StreamlogError as error:
            wanted.append({**told(error), "matching_acls": []})
    filters = tuple(it for it in wanted if isinstance(it, RuleFilter))
    matched = iter(await _removed(filters, context))
    return {
        "filter_results": [next(matched) if isinstance(it, RuleFilter) else it for it in wanted]
    }


async def _removed(filters: tuple[RuleFilter, ...], context: Context) -> list[dict[str, Any]]:
    if not filters:
        return []
    try:
        granted = await context.metadata.request(RemoveAccessRules(filters=filters))
    except StreamlogError as error:
        return [{**told(error), "matching_acls": []} for _ in filters]
    return [
        {
            "error_code": ErrorCode.none,
            "error_message": None,
            "matching_acls": [_shown(Rule.model_validate(rule)) for rule in rules],
        }
        for rules in granted.result["removed"]
    ]


def _shown(rule: Rule) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        **shown_resource(rule),
        **shown_entry(rule),
    }
