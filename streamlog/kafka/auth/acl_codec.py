"""Access rules and filters as Kafka's ACL APIs write them (29 to 31). Pure.

What streamlog does not guard is refused in words: delegation tokens, users.
"""

from typing import Any, Final, TypeVar

from streamlog.acl.filters import NameMatch, RuleFilter
from streamlog.acl.rules import Operation, PatternType, Permission, ResourceType, Rule
from streamlog.errors import InvalidRequest
from streamlog.kafka.refusal import RequestRefused
from streamlog.wire.api_messages import Message
from streamlog.wire.error_codes import ErrorCode

ANY: Final = 1

RESOURCE_TYPES: Final = {
    2: ResourceType.TOPIC,
    3: ResourceType.GROUP,
    4: ResourceType.CLUSTER,
    5: ResourceType.TRANSACTIONAL_ID,
}
UNGUARDED: Final = {6: "delegation tokens", 7: "users"}
NAME_MATCHES: Final = {
    1: NameMatch.ANY,
    2: NameMatch.MATCH,
    3: NameMatch.LITERAL,
    4: NameMatch.PREFIXED,
}
PATTERN_TYPES: Final = {3: PatternType.LITERAL, 4: PatternType.PREFIXED}
OPERATIONS: Final = {
    2: Operation.ALL,
    3: Operation.READ,
    4: Operation.WRITE,
    5: Operation.CREATE,
    6: Operation.DELETE,
    7: Operation.ALTER,
    8: Operation.DESCRIBE,
    9: Operation.CLUSTER_ACTION,
    10: Operation.DESCRIBE_CONFIGS,
    11: Operation.ALTER_CONFIGS,
    12: Operation.IDEMPOTENT_WRITE,
}
PERMISSIONS: Final = {2: Permission.DENY, 3: Permission.ALLOW}

V = TypeVar("V")
_NUMBERS: Final[dict[object, int]] = {
    value: number
    for table in (RESOURCE_TYPES, PATTERN_TYPES, OPERATIONS, PERMISSIONS)
    for number, value in table.items()
}


def number_of(word: ResourceType | PatternType | Operation | Permission) -> int:
    """As Kafka's protocol writes it."""
    return _NUMBERS[word]


def read_rule(creation: Message) -> Rule:
    """Raises Refused."""
    try:
        return Rule.of(
            permission=_known(PERMISSIONS, creation["permission_type"], "permission type"),
            principal=creation["principal"],
            host=creation["host"],
            operation=_known(OPERATIONS, creation["operation"], "operation"),
            resource_type=_resource_type(creation["resource_type"]),
            pattern_type=_known(PATTERN_TYPES, creation["resource_pattern_type"], "pattern type"),
            name=creation["resource_name"],
        )
    except InvalidRequest as error:
        raise RequestRefused(ErrorCode.invalid_request, str(error)) from None


def read_filter(wanted: Message) -> RuleFilter:
    """Raises Refused."""
    kind = wanted["resource_type_filter"]
    operation, permission = wanted["operation"], wanted["permission_type"]
    found = RuleFilter(
        resource_type=None if kind == ANY else _resource_type(kind),
        name_match=_known(NAME_MATCHES, wanted["pattern_type_filter"], "pattern type"),
        name=wanted["resource_name_filter"],
        principal=wanted["principal_filter"],
        host=wanted["host_filter"],
        operation=None if operation == ANY else _known(OPERATIONS, operation, "operation"),
        permission=None if permission == ANY else _known(PERMISSIONS, permission, "permission"),
    )
    try:
        found.check()
    except InvalidRequest as error:
        raise RequestRefused(ErrorCode.invalid_request, str(error)) from None
    return found


def file_note(count: int) -> str:
    """Beside an answer of DescribeAcls, which has no place for it in a rule."""
    return f"the last {count} of these resources stand in authorization.rules_file of this node"


def shown_resource(rule: Rule) -> dict[str, Any]:
    return {
        "resource_type": number_of(rule.resource_type),
        "resource_name": rule.name,
        "pattern_type": number_of(rule.pattern_type),
    }


def shown_entry(rule: Rule) -> dict[str, Any]:
    return {
        "principal": rule.principal,
        "host": rule.host,
        "operation": number_of(rule.operation),
        "permission_type": number_of(rule.permission),
    }


def _resource_type(number: int) -> ResourceType:
    if number in UNGUARDED:
        text = f"there are no {UNGUARDED[number]} here: rules are about topics, groups, transactional ids, the cluster"
        raise RequestRefused(ErrorCode.invalid_request, text)
    return _known(RESOURCE_TYPES, number, "resource type")


def _known(table: dict[int, V], number: int, what: str) -> V:
    found = table.get(number)
    if found is None:
        text = f"{what} {number} is not known here, only {', '.join(map(str, table))}"
        raise RequestRefused(ErrorCode.invalid_request, text)
    return found
