"""The examples of KIP-101 and KIP-279, in numbers."""

import pytest

from streamlog.log.leader_epochs import LeaderEpochs
from streamlog.model import NO_EPOCH, EpochEnd
from streamlog.replication.divergence import cut_offset, divergence, shown_offset


def test_a_follower_without_records_has_nothing_to_compare() -> None:
    assert divergence(EpochEnd(-1, -1), fetch_offset=0, last_epoch=NO_EPOCH) is None


@pytest.mark.parametrize(
    ("end", "offset", "epoch", "parts"),
    [
        (EpochEnd(3, 20), 20, 3, False),
        (EpochEnd(3, 20), 10, 3, False),
        (EpochEnd(3, 20), 21, 3, True),
        (EpochEnd(2, 15), 20, 3, True),
        (EpochEnd(2, 30), 20, 3, True),
    ],
)
def test_it_goes_on_only_inside_an_epoch_that_the_leader_knows(
    end: EpochEnd, offset: int, epoch: int, parts: bool
) -> None:
    expected = end if parts else None
    assert divergence(end, fetch_offset=offset, last_epoch=epoch) == expected


def test_the_cut_is_at_the_smaller_end_of_the_epoch() -> None:
    assert cut_offset(EpochEnd(2, 15), EpochEnd(2, 12), 20) == 12
    assert cut_offset(EpochEnd(2, 12), EpochEnd(2, 15), 20) == 12
    assert cut_offset(EpochEnd(2, 30), EpochEnd(1, 8), 20) == 8, "epoch 2 is not here at all"
    assert cut_offset(EpochEnd(2, 30), EpochEnd(NO_EPOCH, -1), 20) == 20


def test_what_is_shown_never_falls_and_is_here() -> None:
    assert shown_offset(10, log_end=20, before=5) == 10
    assert shown_offset(30, log_end=20, before=5) == 20
    assert shown_offset(3, log_end=20, before=5) == 5


def meet(leader: list[int], follower: list[int]) -> tuple[list[int], int]:
    """Logs as the epochs of their records. The follower's when it may fetch, and after how many
    questions that was.
    """

    def epochs_of(log: list[int]) -> LeaderEpochs:
        epochs = LeaderEpochs()
        for offset, epoch in enumerate(log):
            epochs.assign(epoch, offset)
        return epochs

    for count in range(1, 100):
        own = epochs_of(follower)
        end = epochs_of(leader).end_offset_for(own.latest, len(leader))
        parts = divergence(end, fetch_offset=len(follower), last_epoch=own.latest)
        if parts is None:
            return follower, count
        at = cut_offset(parts, own.end_offset_for(parts.epoch, len(follower)), len(follower))
        assert at < len(follower), "each question gets on"
        follower = follower[:at]
    raise AssertionError("no end of it")


def test_histories_meet_at_what_they_share() -> None:
    assert meet([1, 1, 3, 3], [1, 1, 1, 2, 2]) == ([1, 1], 2)
    assert meet([1, 1, 1, 1, 4], [1, 1, 2, 3]) == ([1, 1], 2)
    assert meet([0, 0, 5, 5], [0, 0, 5, 5, 5]) == ([0, 0, 5, 5], 2)
    assert meet([0, 2, 4, 6], [0, 1, 3, 5]) == ([0], 4)
