"""Many rules, so that what is asked of one resource costs the length of its name. Pure."""

from collections.abc import Iterator
from typing import Final, NamedTuple, Self

from immutables import Map

from streamlog.acl.rules import ANYTHING, PatternType, Permission, ResourceType, Rule


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

    def covering(self, principal: str, kind: ResourceType, name: str) -> Iterator[Rule]:
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
