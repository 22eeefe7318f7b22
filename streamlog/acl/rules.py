"""What one rule says: who may, or may not, do what with which resource (KIP-11, KIP-290). Pure.

The words are Kafka's, in small letters; their numbers on the wire stand in ``wire_form``.
"""

import ipaddress
from enum import StrEnum
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from streamlog.authn.principal import USER, Principal
from streamlog.errors import InvalidRequest

ANYTHING: Final = "*"
"""Any host; as a literal name: any resource of the type."""
ANYBODY: Final = f"{USER}:{ANYTHING}"
CLUSTER_NAME: Final = "kafka-cluster"
"""Kafka's name for the one cluster that there is."""
NAME_CHARS_MAX: Final = 250
PRINCIPAL_CHARS_MAX: Final = 1_000


class Operation(StrEnum):
    """What may be done. ``ALL`` stands in rules only: no request asks for it."""

    ALL = "all"
    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    CLUSTER_ACTION = "cluster_action"
    DESCRIBE_CONFIGS = "describe_configs"
    ALTER_CONFIGS = "alter_configs"
    IDEMPOTENT_WRITE = "idempotent_write"


class ResourceType(StrEnum):
    """What is guarded. Transactional ids and delegation tokens are not: there are none."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"


class PatternType(StrEnum):
    """Whether a rule names one resource, or all whose names begin so."""

    LITERAL = "literal"
    PREFIXED = "prefixed"


class Permission(StrEnum):
    """Whatever is denied is so, however much is allowed."""

    ALLOW = "allow"
    DENY = "deny"


IMPLIED_BY: Final[dict[Operation, frozenset[Operation]]] = {
    **{it: frozenset({it, Operation.ALL}) for it in Operation},
    Operation.DESCRIBE: frozenset(
        {
            Operation.DESCRIBE,
            Operation.READ,
            Operation.WRITE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.ALL,
        }
    ),
    Operation.DESCRIBE_CONFIGS: frozenset(
        {Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL}
    ),
}
"""To be allowed any of these is to be allowed the key. Nothing is denied by implication."""

OPERATIONS: Final[dict[ResourceType, frozenset[Operation]]] = {
    ResourceType.TOPIC: frozenset(
        {
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.ALL,
        }
    ),
    ResourceType.GROUP: frozenset(
        {Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.ALL}
    ),
    ResourceType.CLUSTER: frozenset(
        {
            Operation.CREATE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
            Operation.ALL,
        }
    ),
}
"""What a rule may be about."""


class Rule(BaseModel):
    """A value: two rules that say the same are the same rule."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    permission: Permission
    principal: str
    """As in ``User:alice``; ``User:*`` is every client, also one that has not logged in."""
    host: str = ANYTHING
    """The address that it is asked from, without a port; no names, for these are not looked up."""
    operation: Operation
    resource_type: ResourceType
    pattern_type: PatternType = PatternType.LITERAL
    name: str

    @classmethod
    def of(cls, **fields: object) -> Self:
        """Raises InvalidRequest with what is wrong in words."""
        try:
            return cls.model_validate(fields)
        except ValueError as error:
            raise InvalidRequest(f"access rule: {_first_line(error)}") from None

    @field_validator("principal")
    @classmethod
    def _check_principal(cls, value: str) -> str:
        if len(value) > PRINCIPAL_CHARS_MAX:
            raise ValueError(f"a principal has at most {PRINCIPAL_CHARS_MAX} characters")
        return str(Principal.parse(value))

    @field_validator("host")
    @classmethod
    def _check_host(cls, value: str) -> str:
        return value if value == ANYTHING else canonical_host(value)

    @field_validator("name")
    @classmethod
    def _check_name(cls, value: str) -> str:
        if not 1 <= len(value) <= NAME_CHARS_MAX or not value.isprintable():
            raise ValueError(f"a name has 1 to {NAME_CHARS_MAX} printable characters")
        return value

    @model_validator(mode="after")
    def _check(self) -> Self:
        kind = self.resource_type
        if self.operation not in OPERATIONS[kind]:
            known = ", ".join(sorted(OPERATIONS[kind]))
            raise ValueError(f"{self.operation} is not for a {kind}: {known}")
        if kind is ResourceType.CLUSTER and (self.pattern_type, self.name) not in _CLUSTERS:
            raise ValueError(f"the cluster is named {CLUSTER_NAME}, literally")
        return self

    def __str__(self) -> str:
        prefix = ANYTHING if self.pattern_type is PatternType.PREFIXED else ""
        return (
            f"{self.permission} {self.principal} from {self.host} to {self.operation}"
            f" {self.resource_type} {self.name}{prefix}"
        )


_CLUSTERS: Final = {(PatternType.LITERAL, CLUSTER_NAME), (PatternType.LITERAL, ANYTHING)}


def canonical_host(host: str) -> str:
    """One spelling of each address; an IPv4 address that came by IPv6 is the former.

    Raises ValueError.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        raise ValueError(f"host {host[:60]!r}: write * or an address, as in 10.0.0.7") from None
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _first_line(error: ValueError) -> str:
    errors = getattr(error, "errors", None)
    if errors is None:
        return str(error)
    first = errors()[0]
    place = ".".join(map(str, first["loc"]))
    text = str(first["msg"]).removeprefix("Value error, ")
    return f"{place}: {text}" if place else text
