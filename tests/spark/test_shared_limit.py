from hypothesis import given
from hypothesis import strategies as st

from pyspark_streamlog.source.micro_batch import share


@given(
    st.dictionaries(st.integers(0, 9), st.integers(0, 2**40), min_size=1),
    st.integers(1, 2**41),
)
def test_a_limit_is_shared_out_in_full_and_nobody_starves(
    wanted: dict[int, int], limit: int
) -> None:
    parts = share(wanted, limit)
    total = sum(wanted.values())
    wanting = [key for key, want in wanted.items() if want]
    assert sum(parts.values()) == min(limit, total)
    assert all(0 <= part <= wanted[key] for key, part in parts.items())
    assert set(parts) == set(wanted)
    if limit >= len(wanting):
        assert all(parts[key] >= 1 for key in wanting)
    for key, want in wanted.items():  # about in proportion
        if total > limit:
            assert abs(parts[key] - want * limit / total) <= len(wanted) + 1 + want * 1e-9


def test_the_parts_are_in_proportion() -> None:
    assert share({"a": 300, "b": 100, "c": 0}, 40) == {"a": 30, "b": 10, "c": 0}
    assert share({"a": 3, "b": 1}, 40) == {"a": 3, "b": 1}
    assert share({"a": 1_000_000, "b": 1}, 10) == {"a": 9, "b": 1}
