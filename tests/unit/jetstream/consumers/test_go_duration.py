import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.jetstream.consumers.go_duration import MS, go_text, ms_of, read_go_text


@given(st.integers(0, 10**12))
def test_a_duration_reads_what_it_wrote(duration_ms: int) -> None:
    assert read_go_text(go_text(duration_ms)) == duration_ms * MS


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0s"), (1, "1ms"), (999, "999ms"), (1_000, "1s"), (1_500, "1.5s"), (1_001, "1.001s"),
        (60_000, "1m0s"), (3_600_000, "1h0m0s"), (3_661_050, "1h1m1.05s"),
    ],
)  # fmt: skip
def test_a_duration_is_written_as_go_writes_it(duration_ms: int, text: str) -> None:
    assert go_text(duration_ms) == text


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [
        ("0", 0), ("-0", 0), ("+0", 0), ("1ns", 1), ("1us", 1_000), ("1\u00b5s", 1_000),
        ("1\u03bcs", 1_000),
        ("1m1s", 61_000 * MS), ("1s1m", 61_000 * MS), ("-1.5s", -1_500 * MS), (".5s", 500 * MS),
        ("1.s", 1_000 * MS), ("0.1ns", 0), ("", None), ("1", None), ("s", None), (".s", None),
        ("1 s", None), ("1S", None), ("--1s", None), ("00", None), ("\u0661s", None), ("1s ", None),
        ("9223372036854775807ns", 2**63 - 1), ("9223372036854775808ns", None), ("9" * 5000, None),
    ],
)  # fmt: skip
def test_a_duration_is_read_as_go_reads_it(text: str, duration_ns: int | None) -> None:
    assert read_go_text(text) == duration_ns


def test_a_part_of_a_millisecond_counts_as_one() -> None:
    assert [ms_of(it) for it in (0, 1, MS, MS + 1, -1)] == [0, 1, 1, 2, 0]
