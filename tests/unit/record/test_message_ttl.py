import pytest

from streamlog.record.published import FOR_EVER, lifetime_s


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1", 1), ("86400", 86_400), ("00", 0), ("", 0), ("never", FOR_EVER), ("NEVER", FOR_EVER),
        ("1s", 1), ("1.5s", 1), ("1h30m", 5_400), ("+2s", 2), ("1000ms", 1), (".5m", 30),
        ("1000000us", 1), ("1000000µs", 1), ("1m0.5s", 60), ("9" * 25, 10**11),
    ],
)  # fmt: skip
def test_lifetimes(text: str, seconds: int) -> None:
    assert lifetime_s(text.encode()) == seconds


@pytest.mark.parametrize(
    "text",
    ["0", "0s", "999ms", "-1", "-1s", "x", "1.5", "1 s", "s", "1d", "1s ", ".s", "9" * 101, "1e3",
     "9999999999h", "\u0661", "nevers", "1_000"],
)  # fmt: skip
def test_what_is_none(text: str) -> None:
    assert lifetime_s(text.encode()) is None


def test_bytes_that_are_no_text() -> None:
    assert lifetime_s(b"\xff\xfe") is None
