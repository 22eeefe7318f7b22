import pytest

from streamlog.coordination.keys import java_hash, partition_of


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(1 << 31)),
    ],
)
def test_java_hashes_likewise(text: str, hashed: int) -> None:
    assert java_hash(text) == hashed


def test_characters_beyond_16_bits_are_two() -> None:
    assert java_hash("\U0001f600") == 0xD83D * 31 + 0xDE00


def test_the_smallest_hash_counts_as_0() -> None:
    assert partition_of("polygenelubricants", 50) == 0
    assert partition_of("hello", 50) == 99162322 % 50
    names = (f"group-{number}" for number in range(1000))
    negative = next(text for text in names if java_hash(text) < 0)
    assert partition_of(negative, 7) == -java_hash(negative) % 7
