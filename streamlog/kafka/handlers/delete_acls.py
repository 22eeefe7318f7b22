"""DeleteAcls (31), versions 1 to 3: the access rules that filters match are no more (KIP-140).

Each filter is told what it matched. Rules in a node's own file are not touched: they are told with
an error that says where they stand.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from streamlog.acl.filters import RuleFilter, found
from streamlog.acl.rules import Rule
from streamlog.errors import StreamlogError
from streamlog.kafka.configs.acl_codec import read_filter, shown_entry, shown_resource
from streamlog.kafka.context import Context
from streamlog.kafka.refusal import told
from streamlog.metadata.commands import RemoveAccessRules
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
            "matching_acls": [
                *(_shown(Rule.model_validate(rule)) for rule in rules),
                *_kept(wanted, context),
            ],
        }
        for wanted, rules in zip(filters, granted.result["removed"], strict=True)
    ]


def _kept(wanted: RuleFilter, context: Context) -> list[dict[str, Any]]:
    """Those that are not for the protocol to remove."""
    authority = context.authority
    if authority is None or authority.file is None:
        return []
    problem = (
        f"stands in {authority.file} (authorization.rules_file) of node {context.node_id}: take it out there,"
        " on each node that has it"
    )
    return [
        _shown(rule, ErrorCode.policy_violation, f"{rule}: {problem}")
        for rule in found(authority.file_rules, wanted)
    ]


def _shown(
    rule: Rule, code: ErrorCode = ErrorCode.none, message: str | None = None
) -> dict[str, Any]:
    return {
        "error_code": code,
        "error_message": message,
        **shown_resource(rule),
        **shown_entry(rule),
    }
