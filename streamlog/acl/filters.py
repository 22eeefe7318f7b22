"""Which rules are meant: what DescribeAcls and DeleteAcls ask with (KIP-290). Pure."""

from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict

from streamlog.acl.rules import (
    ANYTHING,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
    RuleBook,
)
from streamlog.errors import InvalidRequest


class NameMatch(StrEnum):
    """How the name of a filter is meant."""

    ANY = "any"
    """The very name, literal or prefixed."""
    MATCH = "match"
    """Whatever takes in a resource of that name: literal, ``*``, and prefixes of it."""
    LITERAL = "literal"
    PREFIXED = "prefixed"


class RuleFilter(BaseModel):
    """None stands for any."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    resource_type: ResourceType | None = None
    name_match: NameMatch = NameMatch.ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: Operation | None = None
    permission: Permission | None = None

    @classmethod
    def exactly(cls, rule: Rule) -> Self:
        return cls(
            resource_type=rule.resource_type,
            name_match=NameMatch(rule.pattern_type.value),
            name=rule.name,
            principal=rule.principal,
            host=rule.host,
            operation=rule.operation,
            permission=rule.permission,
        )

    def check(self) -> None:
        """Raises InvalidRequest: what matches a name needs one."""
        if self.name_match is NameMatch.MATCH and self.name is None:
            raise InvalidRequest("a filter that matches a name needs one")

    def matches(self, rule: Rule) -> bool:
        wanted = (
            (self.resource_type, rule.resource_type),
            (self.principal, rule.principal),
            (self.host, rule.host),
            (self.operation, rule.operation),
            (self.permission, rule.permission),
        )
        return all(it is None or it == own for it, own in wanted) and self._names(rule)

    def _names(self, rule: Rule) -> bool:
        match self.name_match:
            case NameMatch.LITERAL if rule.pattern_type is not PatternType.LITERAL:
                return False
            case NameMatch.PREFIXED if rule.pattern_type is not PatternType.PREFIXED:
                return False
            case NameMatch.MATCH:
                return self.name is not None and _takes_in(rule, self.name)
        return self.name is None or self.name == rule.name


def _takes_in(rule: Rule, name: str) -> bool:
    if rule.pattern_type is PatternType.PREFIXED:
        return name.startswith(rule.name)
    return rule.name in (name, ANYTHING)


def found(book: RuleBook, wanted: RuleFilter) -> list[Rule]:
    """In a steady order."""
    return [rule for rule in book.sorted() if wanted.matches(rule)]
