import pytest

from streamlog.arrow.location import piece_bytes

MIB = 1 << 20


@pytest.mark.parametrize(
    "total, bytes_max, tasks_min, expected",
    [
        (0, None, 1, 1),
        (100 * MIB, None, 1, 100 * MIB),
        (1_000 * MIB, None, 1, 128 * MIB),
        (2_048 * MIB, None, 1, 256 * MIB),
        (100_000 * MIB, None, 1, 512 * MIB),
        (4_096 * MIB, None, 64, 64 * MIB),
        (4_096 * MIB, 100 * MIB, 1, 100 * MIB),
        (4_096 * MIB, 8_192 * MIB, 4, 1_024 * MIB),
        (10, None, 3, 4),
    ],
)
def test_tasks_grow_with_what_there_is_to_read(
    total: int, bytes_max: int | None, tasks_min: int, expected: int
) -> None:
    assert piece_bytes(total, bytes_max, tasks_min) == expected
