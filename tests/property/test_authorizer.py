"""The indexed authorizer against a naive twin that looks at every rule."""

from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.acl.authorizer import Authorizer
from streamlog.acl.filters import NameMatch, RuleFilter, found
from streamlog.acl.rules import (
    CLUSTER_NAME,
    OPERATIONS,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
    RuleBook,
)

PRINCIPALS = ("User:a", "User:b", "User:*")
HOSTS = ("*", "10.0.0.1", "10.0.0.2")
NAMES = ("o", "or", "orders", "orders-eu", "ord*", "*", "x")


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    kind = draw(st.sampled_from(ResourceType))
    literal = draw(st.booleans()) or kind is ResourceType.CLUSTER
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else draw(st.sampled_from(NAMES))
    return Rule(
        permission=draw(st.sampled_from(Permission)),
        principal=draw(st.sampled_from(PRINCIPALS)),
        host=draw(st.sampled_from(HOSTS)),
        operation=draw(st.sampled_from(sorted(OPERATIONS[kind]))),
        resource_type=kind,
        pattern_type=PatternType.LITERAL if literal else PatternType.PREFIXED,
        name=name,
    )


def takes_in(rule: Rule, name: str) -> bool:
    if rule.pattern_type is PatternType.PREFIXED:
        return name.startswith(rule.name)
    return rule.name in {"*", name}


IMPLYING = {
    Operation.DESCRIBE: {"describe", "read", "write", "delete", "alter"},
    Operation.DESCRIBE_CONFIGS: {"describe_configs", "alter_configs"},
}


def naive(
    every: list[Rule], principal: str, host: str, operation: Operation, kind: str, name: str
) -> bool:
    about = [
        it
        for it in every
        if it.principal in {principal, "User:*"}
        and it.host in {host, "*"}
        and it.resource_type == kind
        and takes_in(it, name)
    ]
    denied = any(it.permission == "deny" and it.operation in {operation, "all"} for it in about)
    implying = IMPLYING.get(operation, {operation.value}) | {"all"}
    return not denied and any(it.permission == "allow" and it.operation in implying for it in about)


questions = st.tuples(
    st.sampled_from(PRINCIPALS[:2]),
    st.sampled_from((*HOSTS[1:], "")),
    st.sampled_from(sorted(set(Operation) - {Operation.ALL})),
    st.sampled_from(ResourceType),
    st.sampled_from((*NAMES, CLUSTER_NAME)),
)


@given(st.lists(rules(), max_size=12), st.lists(rules(), max_size=4), questions)
@settings(max_examples=300, deadline=None)
def test_it_decides_as_the_naive_twin(
    kept: list[Rule], in_file: list[Rule], question: tuple[str, str, Operation, ResourceType, str]
) -> None:
    authorizer = Authorizer((RuleBook.of(*kept), RuleBook.of(*in_file)))
    assert authorizer.allows(*question) == naive([*kept, *in_file], *question)


@given(st.lists(rules(), max_size=8), questions)
@settings(max_examples=300, deadline=None)
def test_something_is_allowed_where_some_name_is(
    kept: list[Rule], question: tuple[str, str, Operation, ResourceType, str]
) -> None:
    """Names that the rules are about, and longer ones, stand for all there are."""
    principal, host, operation, kind, _ = question
    names = {it.name for it in kept} | {f"{it.name}~" for it in kept} | {"~"}
    wanted = any(
        naive(kept, principal, host, operation, kind, name) for name in names - {"*", "ord*"}
    )
    found = Authorizer((RuleBook.of(*kept),)).allows_some(principal, host, operation, kind)
    if wanted:
        assert found
    if found and not wanted:  # a literal rule about a name of the set without the star
        assert any("*" in it.name for it in kept)


@given(st.lists(st.tuples(st.booleans(), rules()), max_size=30))
@settings(max_examples=300, deadline=None)
def test_a_book_is_a_set(steps: list[tuple[bool, Rule]]) -> None:
    book, twin = RuleBook(), set[Rule]()
    for adds, rule in steps:
        before = book
        book = book.added(rule) if adds else book.removed(rule)
        assert (book is before) == ((rule in twin) == adds)
        twin = twin | {rule} if adds else twin - {rule}
        assert len(book) == len(twin)
        assert set(book) == twin
    assert book == RuleBook.of(*twin)
    assert book.sorted() == RuleBook.of(*sorted(twin, key=str, reverse=True)).sorted()


@given(
    st.lists(rules(), max_size=12),
    st.none() | st.sampled_from(NAMES),
    st.sampled_from(NameMatch),
    st.none() | st.sampled_from(PRINCIPALS),
    st.none() | st.sampled_from(Operation),
)
@settings(max_examples=300, deadline=None)
def test_filters_find_what_they_say(
    kept: list[Rule],
    name: str | None,
    match: NameMatch,
    principal: str | None,
    operation: Operation | None,
) -> None:
    wanted = RuleFilter(name=name, name_match=match, principal=principal, operation=operation)

    def meant(rule: Rule) -> bool:
        if match is NameMatch.MATCH:
            named = name is not None and takes_in(rule, name)
        else:
            named = name in (None, rule.name)
            named &= match is NameMatch.ANY or match.value == rule.pattern_type.value
        return named and principal in (None, rule.principal) and operation in (None, rule.operation)

    assert set(found(RuleBook.of(*kept), wanted)) == {it for it in kept if meant(it)}


@given(st.lists(rules(), max_size=12))
@settings(max_examples=100, deadline=None)
def test_a_filter_of_a_rule_finds_just_that(kept: list[Rule]) -> None:
    book = RuleBook.of(*kept)
    for rule in kept:
        assert found(book, RuleFilter.exactly(rule)) == [rule]
