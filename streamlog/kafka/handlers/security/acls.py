"""DescribeAcls, CreateAcls, DeleteAcls."""

from collections.abc import Iterable
from typing import Any

from streamlog.acl.filters import RuleFilter, found
from streamlog.acl.rules import Rule
from streamlog.errors import StreamlogError
from streamlog.kafka.auth.acl_codec import (
    file_note,
    read_filter,
    read_rule,
    shown_entry,
    shown_resource,
)
from streamlog.kafka.context import Context
from streamlog.kafka.refusal import told
from streamlog.wire.api_messages import Message
from streamlog.wire.error_codes import ErrorCode


async def describe_acls(request: Message, _version: int, context: Context) -> Message:
    """DescribeAcls (29), versions 1 to 3: the access rules that a filter matches (KIP-140, KIP-290).

    Those of the cluster's metadata come first, then those of this node's own file. The protocol has no
    place for where a rule stands: it is told beside them, where a message is allowed.
    """
    try:
        listed = await context.control.rules.list(read_filter(request))
    except StreamlogError as error:
        return {**told(error), "resources": []}
    of_file = _by_resource(listed.file_rules)
    return {
        "error_code": ErrorCode.none,
        "error_message": file_note(len(of_file)) if of_file else None,
        "resources": [*_by_resource(listed.rules), *of_file],
    }


def _by_resource(rules: Iterable[Rule]) -> list[dict[str, Any]]:
    resources: dict[tuple[Any, ...], dict[str, Any]] = {}
    for rule in rules:
        shown = shown_resource(rule)
        resource = resources.setdefault(tuple(shown.values()), {**shown, "acls": []})
        resource["acls"].append(shown_entry(rule))
    return list(resources.values())


async def create_acls(request: Message, _version: int, context: Context) -> Message:
    """CreateAcls (30), versions 1 to 3: more access rules (KIP-140, KIP-290).

    Each by itself as far as it is wrong; those that are right are added together. What is there already
    is a success.
    """
    results: list[dict[str, Any] | None] = []
    rules: list[Rule] = []
    for creation in request["creations"]:
        try:
            rules.append(read_rule(creation))
            results.append(None)
        except StreamlogError as error:
            results.append(told(error))
    outcome: dict[str, Any] = {"error_code": ErrorCode.none, "error_message": None}
    if rules:
        try:
            await context.control.rules.add(tuple(rules))
        except StreamlogError as error:
            outcome = told(error)
    return {"results": [outcome if result is None else result for result in results]}


async def delete_acls(request: Message, _version: int, context: Context) -> Message:
    """DeleteAcls (31), versions 1 to 3: the access rules that filters match are no more (KIP-140).

    Each filter is told what it matched. Rules in a node's own file are not touched: they are told with
    an error that says where they stand.
    """
    wanted: list[RuleFilter | dict[str, Any]] = []
    for asked in request["filters"]:
        try:
            wanted.append(read_filter(asked))
        except StreamlogError as error:
            wanted.append({**told(error), "matching_acls": []})
    filters = tuple(it for it in wanted if isinstance(it, RuleFilter))
    matched = iter(await _remove_rules(filters, context))
    return {
        "filter_results": [next(matched) if isinstance(it, RuleFilter) else it for it in wanted]
    }


async def _remove_rules(filters: tuple[RuleFilter, ...], context: Context) -> list[dict[str, Any]]:
    if not filters:
        return []
    try:
        removed = await context.control.rules.remove(filters)
    except StreamlogError as error:
        return [{**told(error), "matching_acls": []} for _ in filters]
    return [
        {
            "error_code": ErrorCode.none,
            "error_message": None,
            "matching_acls": [
                *(_shown_rule(rule) for rule in rules),
                *_rules_in_file(wanted, context),
            ],
        }
        for wanted, rules in zip(filters, removed, strict=True)
    ]


def _rules_in_file(wanted: RuleFilter, context: Context) -> list[dict[str, Any]]:
    """Those that are not for the protocol to remove."""
    authorization = context.authorization
    if authorization is None or authorization.file is None:
        return []
    problem = (
        f"stands in {authorization.file} (authorization.rules_file) of node {context.node_id}: take it out there,"
        " on each node that has it"
    )
    return [
        _shown_rule(rule, ErrorCode.policy_violation, f"{rule}: {problem}")
        for rule in found(authorization.file_rules, wanted)
    ]


def _shown_rule(
    rule: Rule, code: ErrorCode = ErrorCode.none, message: str | None = None
) -> dict[str, Any]:
    return {
        "error_code": code,
        "error_message": message,
        **shown_resource(rule),
        **shown_entry(rule),
    }
