import pytest

from streamlog.log.layout import base_offset_of, segment_base_offsets, segment_stem


def test_names_have_twenty_digits() -> None:
    assert segment_stem(0) == "0" * 20
    assert segment_stem(2**63 - 1) == "09223372036854775807"
    assert base_offset_of(segment_stem(4711) + ".timeindex") == 4711


@pytest.mark.parametrize(
    "name",
    [
        "17.log",
        "0" * 21 + ".log",
        "0" * 19 + "x.log",
        "\u0660" * 20 + ".log",
        "9" * 20 + ".log",
        ".log",
    ],
)
def test_what_is_no_segments_file(name: str) -> None:
    assert base_offset_of(name) is None


def test_segments_come_in_order_and_others_not_at_all() -> None:
    names = [
        segment_stem(300) + ".log",
        segment_stem(20) + ".log",
        segment_stem(20) + ".index",
        segment_stem(7) + ".log.tmp",
        segment_stem(7) + ".deleted.log",
        "leader-epoch-checkpoint",
    ]
    assert segment_base_offsets(names) == [20, 300]
