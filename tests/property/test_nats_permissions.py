"""Lists of allowed and denied subjects against trying out all short subjects."""

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.nats.auth.subject_permissions import (
    PermissionRules,
    ReplyLimit,
    SubjectList,
    SubjectPermissions,
)

TOKENS = ["a", "b"]
OTHER = "c"
"""In no list, so that ``a`` and ``b`` together are not everything."""
ALL = [".".join(it) for n in range(1, 5) for it in product([*TOKENS, OTHER], repeat=n)]
QUEUES = ["q", "r", "q.1", "r.1"]


def matches(pattern: str, subject: str) -> bool:
    patterns, tokens = pattern.split("."), subject.split(".")
    for i, wanted in enumerate(patterns):
        if wanted == ">":
            return len(tokens) > i
        if i >= len(tokens) or wanted not in ("*", tokens[i]):
            return False
    return len(patterns) == len(tokens)


def takes_in(wide: str, narrow: str) -> bool:
    return all(matches(wide, it) for it in ALL if matches(narrow, it))


patterns = st.builds(
    lambda tokens, tail: ".".join([*tokens, *tail]) or ">",
    st.lists(st.sampled_from([*TOKENS, "*"]), max_size=3),
    st.sampled_from([(), (">",)]),
)
subjects = st.sampled_from(ALL)
queue_patterns = st.sampled_from([*QUEUES, "*", "q.*", ">", "q.>"])
entries = st.one_of(patterns, st.builds("{} {}".format, patterns, queue_patterns))
lists = st.lists(patterns, max_size=5)
queue_lists = st.lists(entries, max_size=5)
some = settings(max_examples=400, deadline=None)


def permissions(*rules: PermissionRules) -> SubjectPermissions:
    return SubjectPermissions(rules, lambda: 0.0)


@some
@given(st.none() | lists, lists, subjects)
def test_a_publish_is_allowed_and_not_denied(
    allow: list[str] | None, deny: list[str], subject: str
) -> None:
    rules = PermissionRules(publish_allow=allow, publish_deny=deny)
    allowed = allow is None or any(matches(it, subject) for it in allow)
    denied = any(matches(it, subject) for it in deny)
    assert permissions(rules).may_publish(subject.encode()) == (allowed and not denied)


@some
@given(st.none() | queue_lists, queue_lists, patterns, st.none() | st.sampled_from(QUEUES))
def test_a_subscription_is_taken_in_by_an_allowed_entry_and_by_no_denied_one(
    allow: list[str] | None, deny: list[str], pattern: str, queue: str | None
) -> None:
    rules = PermissionRules(subscribe_allow=allow, subscribe_deny=deny)
    expected = (allow is None or allows(allow, pattern, queue)) and not denies(deny, pattern, queue)
    group = None if queue is None else queue.encode()
    assert permissions(rules).may_subscribe(pattern.encode(), group) == expected


def allows(allow: list[str], pattern: str, queue: str | None) -> bool:
    split = [it.split() for it in allow]
    fitting = [it[1:] for it in split if takes_in(it[0], pattern)]
    queues = [it[0] for it in fitting if it]
    if queue is not None and queues:
        return any(fits(it, queue) for it in queues)
    return [] in fitting


def denies(deny: list[str], pattern: str, queue: str | None) -> bool:
    split = [it.split() for it in deny]
    fitting = [it[1:] for it in split if takes_in(it[0], pattern)]
    return [] in fitting or any(fits(it[0], queue) for it in fitting if it and queue is not None)


def fits(pattern: str, queue: str | None) -> bool:
    return queue is not None and (pattern == queue or matches(pattern, queue))


@some
@given(queue_lists, patterns, st.none() | st.sampled_from(QUEUES))
def test_what_is_denied_is_never_delivered(
    deny: list[str], pattern: str, queue: str | None
) -> None:
    """Whichever subscription is allowed; and all else is."""
    found = permissions(PermissionRules(subscribe_deny=deny))
    group = None if queue is None else queue.encode()
    if not found.may_subscribe(pattern.encode(), group):
        return
    split = [it.split() for it in deny]
    for subject in (it for it in ALL if matches(pattern, it)):
        denied = any(
            matches(it[0], subject) and (len(it) == 1 or fits(it[1], queue)) for it in split
        )
        assert found.delivery_denies(subject.encode(), group) == denied
        assert not denied or found.needs_filter(pattern.encode())


@some
@given(lists, patterns)
def test_an_overlap_is_a_subject_of_both(entries: list[str], pattern: str) -> None:
    expected = any(matches(it, s) and matches(pattern, s) for it in entries for s in ALL)
    assert SubjectList(entries).overlaps(pattern.encode()) == expected


@some
@given(
    lists,
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from(["deliver", "answer", "wait"]), subjects), max_size=20),
)
def test_answers_are_counted_for_each_message(
    deny: list[str], most: int, steps: list[tuple[str, str]]
) -> None:
    now = [0.0]
    rules = PermissionRules(publish_allow=["a.>"], publish_deny=deny, replies=ReplyLimit(most, 3.0))
    found = SubjectPermissions([rules], lambda: now[0])
    expected: dict[str, tuple[int, float]] = {}
    for step, subject in steps:
        freely = matches("a.>", subject) and not any(matches(it, subject) for it in deny)
        left, since = expected.get(subject, (0, 0.0))
        match step:
            case "wait":
                now[0] += 2.0
            case "deliver":
                found.delivered(subject.encode())
                expected[subject] = most, now[0]
            case _:
                may = freely or (left > 0 and now[0] - since <= 3.0)
                assert found.may_publish(subject.encode()) == may
                expected[subject] = left - (not freely), since
