import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.config.units import duration_ms, duration_text, size_bytes, size_text


@pytest.mark.parametrize(
    ("text", "ms"),
    [("7d", 604_800_000), ("12h", 43_200_000), ("2m", 120_000), ("10s", 10_000), ("5ms", 5),
     ("250", 250), ("0", 0)],
)  # fmt: skip
def test_durations(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize(
    ("text", "size"),
    [("10GiB", 10 * 2**30), ("512MiB", 2**29), ("64k", 65_536), ("64KB", 65_536), ("1t", 2**40),
     ("7B", 7), ("250", 250), ("0", 0)],
)  # fmt: skip
def test_sizes(text: str, size: int) -> None:
    assert size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "d", "1.5h", "-2s", "7 d", "1w", "1D", "\u0663s", "9" * 20])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="write 7d"):
        duration_ms(text)


@pytest.mark.parametrize("text", ["", "k", "1.5k", "-2k", "7 k", "1kk", "1ib", "1x", "9" * 20])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="write 10GiB"):
        size_bytes(text)


@pytest.mark.parametrize(
    ("value", "duration", "size"),
    [(0, "0", "0"), (90_000, "90s", "90000"), (86_400_000, "1d", "84375KiB"), (1024, "1024ms", "1KiB")],
)  # fmt: skip
def test_the_largest_unit_that_fits_is_shown(value: int, duration: str, size: str) -> None:
    assert (duration_text(value), size_text(value)) == (duration, size)


@given(st.integers(0, 2**63 - 1))
def test_what_is_shown_is_read_as_it_was(value: int) -> None:
    assert duration_ms(duration_text(value)) == value
    assert size_bytes(size_text(value)) == value
