"""What a reset does in a partition, in words."""

import pytest

from streamlog.cli.group.reset import effect_of


@pytest.mark.parametrize(
    ("committed", "new", "skipped", "repeated", "note", "effect"),
    [
        (30, 10, 0, 20, "", "repeats 20 records"),
        (30, 50, 20, 0, "", "skips 20 records"),
        (30, 30, 0, 0, "", "no change"),
        (30, 29, 0, 1, "", "repeats 1 record"),
        (30, 10, 0, 20, "the log begins at 10", "repeats 20 records (the log begins at 10)"),
        (3, 10, 0, 0, "", "skips nothing"),
        (None, 50, 0, 0, "", "nothing was committed yet"),
    ],
)
def test_effects(
    committed: int | None, new: int, skipped: int, repeated: int, note: str, effect: str
) -> None:
    change = {
        "committed_offset": committed,
        "new_offset": new,
        "skipped": skipped,
        "repeated": repeated,
        "note": note,
    }
    assert effect_of(change) == effect
