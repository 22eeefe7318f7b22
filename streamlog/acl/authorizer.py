"""Who may do what, by all rules there are (KIP-11). Pure.

Denied is what any rule denies by the operation's own name or by ``all``; else allowed is what any
rule allows, implications included (``rules.IMPLIED_BY``); else it is denied. Super users may do
everything, whatever the rules say.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from streamlog.acl.rules import (
    ANYBODY,
    ANYTHING,
    IMPLIED_BY,
    NO_RULES,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
    RuleBook,
    canonical_host,
)


@dataclass(frozen=True, slots=True, eq=False)
class Authorizer:
    """An immutable value: ``books`` count together, and one that denies wins."""

    books: tuple[RuleBook, ...] = (NO_RULES,)
    super_users: frozenset[str] = frozenset()
    """Principals as texts."""

    def allows(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        """Costs the length of ``name`` at most. ``host``: as ``asking_host`` spells it."""
        if principal in self.super_users:
            return True
        implying = IMPLIED_BY[operation]
        allowed = False
        for rule in self._matching(principal, kind, name):
            if rule.host not in (ANYTHING, host):
                continue
            if rule.permission is Permission.ALLOW:
                allowed |= rule.operation in implying
            elif rule.operation in (operation, Operation.ALL):
                return False
        return allowed

    def allows_some(
        self, principal: str, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        """Whether there is a resource, made or not, with which it is allowed. Costs the rules."""
        if principal in self.super_users:
            return True
        implying = IMPLIED_BY[operation]
        return any(
            rule.permission is Permission.ALLOW
            and rule.host in (ANYTHING, host)
            and rule.operation in implying
            and not self._denies_all_of(rule, principal, host, operation)
            for rule in self._about(principal, kind)
        )

    def denies_some_below(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, prefix: str
    ) -> bool:
        """Whether it is denied with a resource whose name may begin so. Costs the rules."""
        if principal in self.super_users:
            return False
        return any(
            rule.permission is Permission.DENY
            and rule.host in (ANYTHING, host)
            and rule.operation in (operation, Operation.ALL)
            and (
                rule.name.startswith(prefix)
                or (rule.name == ANYTHING and rule.pattern_type is PatternType.LITERAL)
                or (rule.pattern_type is PatternType.PREFIXED and prefix.startswith(rule.name))
            )
            for rule in self._about(principal, kind)
        )

    def _denies_all_of(self, allow: Rule, principal: str, host: str, operation: Operation) -> bool:
        """A rule denies whatever ``allow`` is about."""
        for rule in self._about(principal, allow.resource_type):
            if rule.permission is Permission.ALLOW or rule.host not in (ANYTHING, host):
                continue
            if rule.operation in (operation, Operation.ALL) and _takes_in(rule, allow):
                return True
        return False

    def _matching(self, principal: str, kind: ResourceType, name: str) -> Iterator[Rule]:
        for book in self.books:
            if book:
                yield from book.matching(principal, kind, name)
                yield from book.matching(ANYBODY, kind, name)

    def _about(self, principal: str, kind: ResourceType) -> Iterator[Rule]:
        for book in self.books:
            yield from book.of_principal(principal, kind)
            yield from book.of_principal(ANYBODY, kind)


def _takes_in(wide: Rule, narrow: Rule) -> bool:
    """Whether every resource that ``narrow`` is about is one that ``wide`` is about."""
    if wide.pattern_type is PatternType.LITERAL:
        if wide.name == ANYTHING:
            return True
        return narrow.pattern_type is PatternType.LITERAL and narrow.name == wide.name
    if narrow.name == ANYTHING and narrow.pattern_type is PatternType.LITERAL:
        return False
    return narrow.name.startswith(wide.name)


def asking_host(host: str) -> str:
    """A peer's address in the spelling of rules; what is no address matches ``*`` alone."""
    try:
        return canonical_host(host)
    except ValueError:
        return ""
