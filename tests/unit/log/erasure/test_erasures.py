import pytest

from streamlog.errors import CorruptFile
from streamlog.log.erasure.erasures import Erasure, Erasures
from streamlog.log.erasure.erasures_file import decode, encode
from streamlog.record.offset_set import OffsetSet

OWNER = b"s/0"


def erasure(offset: int, *erased: int) -> Erasure:
    return Erasure(offset, 1, OffsetSet(erased))


def known(*noted: Erasure) -> Erasures:
    erasures = Erasures()
    for each in noted:
        erasures.note(each)
    return erasures


def test_counts_from_its_commit_on() -> None:
    erasures = known(erasure(5, 1, 2), erasure(9, 2, 7))
    assert not erasures.commit(5)
    assert list(erasures.erased) == []
    assert erasures.commit(6)
    assert list(erasures.erased) == [1, 2, 5]
    assert erasures.commit(100)
    assert list(erasures.erased) == [1, 2, 5, 7, 9]
    assert list(erasures.unremoved) == [1, 2, 7]
    assert not erasures.commit(200)


def test_what_is_known_already_does_nothing() -> None:
    erasures = known(erasure(5, 1))
    version = erasures.version
    erasures.note(erasure(5, 1))
    erasures.note(erasure(4, 3))
    assert [it.offset for it in erasures.pending] == [5]
    assert erasures.version == version


def test_a_cut_takes_back_what_was_not_committed() -> None:
    erasures = known(erasure(5, 1), erasure(9, 2))
    erasures.commit(6)
    erasures.cut(9)
    erasures.note(erasure(9, 3))
    erasures.commit(10)
    assert list(erasures.erased) == [1, 3, 5, 9]


def test_the_first_that_the_file_lacks_is_known_after_a_cut() -> None:
    erasures = known(erasure(5, 1), erasure(9, 2))
    erasures.cut(9)
    assert erasures.unkept_offset == 5
    erasures.cut(4)
    assert erasures.unkept_offset is None
    erasures.note(erasure(4, 3))
    assert erasures.unkept_offset == 4


def test_an_unclean_cut_leaves_nothing_for_the_offsets_to_come() -> None:
    erasures = known(erasure(5, 1), erasure(9, 2, 6))
    erasures.commit(10)
    erasures.cut(4)
    assert list(erasures.erased) == [1, 2]
    assert list(erasures.unremoved) == [1, 2]
    erasures.note(erasure(5, 3))
    erasures.commit(6)
    assert list(erasures.erased) == [1, 2, 3, 5]


def test_what_was_removed_stays_erased() -> None:
    erasures = known(erasure(5, 1, 2, 3))
    erasures.commit(6)
    erasures.removed(OffsetSet([1, 2]))
    assert list(erasures.unremoved) == [3]
    assert list(erasures.erased) == [1, 2, 3, 5]
    erasures.note(erasure(6, 2, 4))  # again: it is gone
    erasures.commit(7)
    assert list(erasures.unremoved) == [3, 4]
    erasures.forget_below(4)
    assert (list(erasures.erased), list(erasures.unremoved)) == ([4, 5, 6], [4])


def test_where_the_messages_end() -> None:
    erasures = known()
    assert erasures.messages_end(0) == 0
    assert erasures.messages_end(5) == 5
    erasures.note(erasure(5, 1))
    erasures.note(erasure(6, 2))
    assert erasures.messages_end(7) == 5
    assert erasures.messages_end(8) == 8, "a message has come"
    erasures.note(erasure(8, 3))
    erasures.note(erasure(9, 4))
    erasures.commit(9)
    assert erasures.messages_end(10) == 8
    kept = decode(encode(erasures.snapshot(), OWNER), "f", OWNER)
    again = known()
    again.restore(
        kept.committed.erased, kept.unremoved, kept.committed, kept.pending,
        tail_start=kept.tail_start, committed_tail_start=kept.committed_tail_start,
    )  # fmt: skip
    assert again.committed_messages_end(9) == 8
    assert again.messages_end(10) == 8
    erasures.cut(9)
    assert erasures.messages_end(9) == 8
    erasures.cut(8)
    assert erasures.messages_end(8) == 8


def test_where_the_committed_messages_end() -> None:
    erasures = known(erasure(5, 1), erasure(6, 2), erasure(8, 3), erasure(9, 4))
    for high_watermark, messages_end in ((5, 5), (6, 5), (7, 5), (8, 8), (9, 8), (10, 8), (11, 11)):
        erasures.commit(high_watermark)
        assert erasures.committed_messages_end(high_watermark) == messages_end
    erasures.cut(9)
    assert erasures.messages_end(9) == 9, "an unclean cut forgets"


def test_a_cut_leaves_the_beginning_of_the_tail() -> None:
    erasures = known(erasure(5, 1), erasure(6, 2), erasure(7, 3))
    erasures.cut(7)
    assert erasures.messages_end(7) == 5


def test_a_placeholder_counts_as_a_message() -> None:
    erasures = known(erasure(5, 1), erasure(6)._replace(is_placeholder=True))
    assert erasures.messages_end(7) == 7
    erasures.note(erasure(7, 2))
    erasures.commit(8)
    assert (erasures.messages_end(8), erasures.committed_messages_end(8)) == (7, 7)


def test_the_file_tells_it_all() -> None:
    erasures = known(erasure(5, 1, 2), erasure(9, 2, 7))
    erasures.commit(6)
    erasures.removed(OffsetSet([1]))
    kept = decode(encode(erasures, OWNER), "f", OWNER)
    committed, unremoved, pending, tail_start, committed_tail_start = kept
    assert (committed.offset, committed.epoch) == (5, 1)
    assert list(committed.erased) == [1, 2, 5]
    assert list(unremoved) == [2]
    assert (tail_start, committed_tail_start) == (9, 5)
    assert pending == [erasure(9, 2, 7)]


def test_a_damaged_file_is_told_for_one() -> None:
    data = encode(known(erasure(5, 1)), OWNER)
    for end in range(len(data)):
        with pytest.raises(CorruptFile):
            decode(data[:end], "f", OWNER)
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1
        with pytest.raises(CorruptFile):
            decode(bytes(flipped), "f", OWNER)
    with pytest.raises(CorruptFile, match="another folder"):
        decode(data, "f", b"s/1")
