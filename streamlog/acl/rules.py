"""Access rules (ACLs): what one rule says, and a set of rules with the lookup of those that match (KIP-11,
KIP-290). Pure.

``RuleBook.matching`` costs the length of the resource's name, however many rules there are.

The words are Kafka's, in small letters; their numbers on the wire are in ``kafka.auth.acl_codec``.
"""

import ipaddress
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple, Self

from immutables import Map
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
    """What is guarded. Delegation tokens are not: there are none."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional_id"


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
    ResourceType.TRANSACTIONAL_ID: frozenset({Operation.WRITE, Operation.DESCRIBE, Operation.ALL}),
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


class RulePlace(NamedTuple):
    """Where rules are found: the same principal, the same pattern."""

    principal: str
    resource_type: ResourceType
    pattern_type: PatternType
    name: str

    @classmethod
    def of(cls, rule: Rule) -> Self:
        return cls(rule.principal, rule.resource_type, rule.pattern_type, rule.name)


class RuleBook:
    """An immutable set of rules; a change makes another one, which shares what stays."""

    __slots__ = ("_lengths", "_places", "_size")

    def __init__(
        self,
        places: Map[RulePlace, tuple[Rule, ...]] | None = None,
        size: int = 0,
        lengths: Map[int, int] | None = None,
    ) -> None:
        self._places: Map[RulePlace, tuple[Rule, ...]] = Map() if places is None else places
        self._size = size
        self._lengths: Map[int, int] = Map() if lengths is None else lengths
        """Of the prefixes, and how many rules have one so long: no other is looked for."""

    @classmethod
    def of(cls, *rules: Rule) -> "RuleBook":
        book = cls()
        for rule in rules:
            book = book.added(rule)
        return book

    def added(self, rule: Rule) -> "RuleBook":
        """Itself where the rule is there."""
        if rule in self:
            return self
        place = RulePlace.of(rule)
        known = self._places.get(place, ())
        places = self._places.set(place, (*known, rule))
        return RuleBook(places, self._size + 1, self._counted(rule, 1))

    def removed(self, rule: Rule) -> "RuleBook":
        """Itself where the rule is not there."""
        if rule not in self:
            return self
        place = RulePlace.of(rule)
        rest = tuple(it for it in self._places[place] if it != rule)
        places = self._places.set(place, rest) if rest else self._places.delete(place)
        return RuleBook(places, self._size - 1, self._counted(rule, -1))

    def matching(self, principal: str, kind: ResourceType, name: str) -> Iterator[Rule]:
        """The rules for ``principal``, by that very name, whose pattern takes in ``name``."""
        places = self._places
        literal = PatternType.LITERAL
        yield from places.get(RulePlace(principal, kind, literal, name), ())
        if name != ANYTHING:
            yield from places.get(RulePlace(principal, kind, literal, ANYTHING), ())
        prefixed = PatternType.PREFIXED
        for length in self._lengths:
            if length <= len(name):
                yield from places.get(RulePlace(principal, kind, prefixed, name[:length]), ())

    def of_principal(self, principal: str, kind: ResourceType) -> Iterator[Rule]:
        """The rules for ``principal``, by that very name, about any resource of the type. Looks at
        every pattern there is.
        """
        for place, rules in self._places.items():
            if place.principal == principal and place.resource_type is kind:
                yield from rules

    def sorted(self) -> list[Rule]:
        """The same order for the same rules, however they came."""
        return sorted(self, key=_order)

    def _counted(self, rule: Rule, by: int) -> Map[int, int]:
        if rule.pattern_type is not PatternType.PREFIXED:
            return self._lengths
        length = len(rule.name)
        count = self._lengths.get(length, 0) + by
        return self._lengths.set(length, count) if count else self._lengths.delete(length)

    def __contains__(self, rule: Rule) -> bool:
        return rule in self._places.get(RulePlace.of(rule), ())

    def __iter__(self) -> Iterator[Rule]:
        for rules in self._places.values():
            yield from rules

    def __len__(self) -> int:
        return self._size

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RuleBook):
            return NotImplemented
        return self is other or (len(self) == len(other) and set(self) == set(other))

    def __hash__(self) -> int:
        return hash(frozenset(self))

    def __repr__(self) -> str:
        return f"RuleBook({self._size} rules)"


NO_RULES: Final = RuleBook()


def _order(rule: Rule) -> tuple[str, ...]:
    return (
        rule.resource_type, rule.pattern_type, rule.name, rule.principal, rule.host,
        rule.operation, "" if rule.permission is Permission.DENY else "allow",
    )  # fmt: skip
