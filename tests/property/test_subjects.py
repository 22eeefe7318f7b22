"""``overlap`` against trying out all short subjects."""

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.metadata.stream.subjects import SubjectTree, is_subset, overlap

TOKENS = ["a", "b"]
ALL = [".".join(t) for n in range(1, 5) for t in product(TOKENS, repeat=n)]


def matches(pattern: str, subject: str) -> bool:
    patterns, tokens = pattern.split("."), subject.split(".")
    for i, wanted in enumerate(patterns):
        if wanted == ">":
            return len(tokens) > i
        if i >= len(tokens) or wanted not in ("*", tokens[i]):
            return False
    return len(patterns) == len(tokens)


patterns = st.builds(
    lambda tokens, tail: ".".join([*tokens, *tail]),
    st.lists(st.sampled_from([*TOKENS, "*"]), min_size=1, max_size=3),
    st.sampled_from([(), (">",)]),
)


@settings(max_examples=300, deadline=None)
@given(patterns, patterns)
def test_overlap(one: str, other: str) -> None:
    assert overlap(one, other) == any(matches(one, s) and matches(other, s) for s in ALL)


@settings(max_examples=300, deadline=None)
@given(patterns, patterns)
def test_subset(one: str, other: str) -> None:
    heard = [s for s in ALL if matches(one, s)]
    if is_subset(one, other):
        assert all(matches(other, s) for s in heard)
    elif heard and "*" not in one and ">" not in one:
        assert not matches(other, one)


ragged = st.lists(st.sampled_from([*TOKENS, "*", ">", ""]), min_size=1, max_size=4).map(".".join)


@settings(max_examples=300, deadline=None)
@given(st.lists(patterns | ragged, max_size=8), patterns | ragged)
def test_tree_finds_the_first_of_the_patterns_that_overlap(known: list[str], one: str) -> None:
    """Also among patterns that are not well formed: a request is compared before it is refused."""
    tree = SubjectTree()
    for number in range(len(known) - 1, -1, -1):
        tree.add(known[number], number)
    expected = next((n for n, other in enumerate(known) if overlap(one, other)), None)
    assert tree.overlapping(one) == expected
