import pytest

from streamlog.errors import CorruptFile
from streamlog.log.checkpoint import encode_checkpoint
from streamlog.log.leader_epochs import EpochStart, LeaderEpochs
from streamlog.model import EpochEnd


@pytest.fixture
def epochs() -> LeaderEpochs:
    """Epoch 2 from 0, 3 from 10, 7 from 25."""
    epochs = LeaderEpochs()
    for epoch, offset in ((2, 0), (3, 10), (7, 25)):
        assert epochs.assign(epoch, offset)
    return epochs


def test_only_a_newer_epoch_is_news(epochs: LeaderEpochs) -> None:
    assert not epochs.assign(7, 30)
    assert not epochs.assign(5, 30)
    assert epochs.latest == 7
    assert LeaderEpochs().latest == -1


def test_an_epoch_without_records_gives_way(epochs: LeaderEpochs) -> None:
    epochs.assign(8, 25)
    assert epochs.entries[-1] == EpochStart(8, 25)
    assert len(epochs.entries) == 3


@pytest.mark.parametrize(
    ("epoch", "end"),
    [
        (7, EpochEnd(7, 40)),
        (3, EpochEnd(3, 25)),
        (2, EpochEnd(2, 10)),
        (5, EpochEnd(3, 25)),
        (1, EpochEnd(1, 0)),
        (8, EpochEnd(-1, -1)),
        (-1, EpochEnd(-1, -1)),
    ],
)
def test_where_an_epoch_ends(epochs: LeaderEpochs, epoch: int, end: EpochEnd) -> None:
    assert epochs.end_offset_for(epoch, 40) == end


def test_without_epochs_no_end_is_known() -> None:
    assert LeaderEpochs().end_offset_for(0, 5) == EpochEnd(-1, -1)


def test_the_epoch_of_a_record(epochs: LeaderEpochs) -> None:
    assert [epochs.epoch_at(offset) for offset in (0, 9, 10, 24, 25, 99)] == [2, 2, 3, 3, 7, 7]
    epochs.advance_start(12)
    assert epochs.epoch_at(9) == -1


def test_what_was_written_before_the_first_known_epoch_is_of_none(epochs: LeaderEpochs) -> None:
    epochs.advance_start(12)
    assert epochs.between(4, 11) == [EpochStart(3, 10)]
    assert epochs.between(11, 26) == [EpochStart(3, 11), EpochStart(7, 25)]
    assert epochs.between(4, 10) == []


def test_truncation_forgets_what_began_later(epochs: LeaderEpochs) -> None:
    assert not epochs.truncate(26)
    assert epochs.truncate(25)
    assert epochs.latest == 3
    assert epochs.truncate(0)
    assert epochs.entries == ()


def test_the_epoch_of_the_log_start_is_kept(epochs: LeaderEpochs) -> None:
    assert not epochs.advance_start(9)
    assert epochs.advance_start(12)
    assert epochs.entries == (EpochStart(3, 10), EpochStart(7, 25))
    assert epochs.advance_start(25)
    assert epochs.entries == (EpochStart(7, 25),)
    assert not epochs.advance_start(1_000)


def test_the_text_is_a_checkpoint(epochs: LeaderEpochs) -> None:
    assert epochs.encode() == encode_checkpoint(["2 0", "3 10", "7 25"])
    assert LeaderEpochs.decode(epochs.encode(), "x").entries == epochs.entries
    assert LeaderEpochs.decode(encode_checkpoint([]), "x").entries == ()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"0\n0\n",
        encode_checkpoint(["3 10"])[:-1],
        encode_checkpoint(["3 10"]).replace(b"3 10", b"3 11"),
        encode_checkpoint(["3"]),
        encode_checkpoint(["3 x"]),
        encode_checkpoint(["-3 1"]),
        encode_checkpoint(["3 10", "3 11"]),
        encode_checkpoint(["3 10", "4 10"]),
        encode_checkpoint(["4 10", "3 11"]),
        b"\xff\xfe",
        bytes(20),
    ],
)
def test_a_damaged_text_is_refused_by_name(content: bytes) -> None:
    with pytest.raises(CorruptFile, match="epochs-of-x"):
        LeaderEpochs.decode(content, "epochs-of-x")


@pytest.mark.parametrize(
    ("read", "end", "shared"),
    [
        ([], 30, 30),
        ([EpochStart(2, 0)], 8, 8),
        ([EpochStart(2, 0)], 12, 10),  # what it read there of epoch 2 is lost
        ([EpochStart(2, 0), EpochStart(3, 10)], 20, 20),
        ([EpochStart(3, 10)], 40, 25),
        ([EpochStart(7, 25)], 29, 29),
        ([EpochStart(7, 25)], 40, 30),
        ([EpochStart(3, 10), EpochStart(5, 20)], 24, 20),  # no record of epoch 5 is here
        ([EpochStart(5, 27), EpochStart(6, 28)], 29, 27),
        ([EpochStart(8, 50)], 60, 30),
    ],
)
def test_how_much_of_what_was_read_is_here(
    epochs: LeaderEpochs, read: list[EpochStart], end: int, shared: int
) -> None:
    assert epochs.shared_end(read, end, 30) == shared
