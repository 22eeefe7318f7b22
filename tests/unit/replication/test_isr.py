"""Until it hears back, a leader counts with whoever may be in sync."""

import pytest

from streamlog.model import NodeId
from streamlog.replication.isr import DOUBT_MS, InSync, IsrProposal

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)


def proposal(partition_epoch: int, *members: NodeId) -> IsrProposal:
    return IsrProposal(5, partition_epoch, tuple((member, 10) for member in members))


def test_the_larger_of_both_counts() -> None:
    in_sync = InSync((ONE, TWO), 7)
    assert in_sync.maximal == {ONE, TWO}
    in_sync.propose(proposal(7, ONE, THREE))
    assert (in_sync.logged, in_sync.maximal) == ({ONE, TWO}, {ONE, TWO, THREE})
    with pytest.raises(AssertionError):
        in_sync.propose(proposal(7, ONE))


def test_a_newer_partition_epoch_ends_a_proposal_whatever_it_says() -> None:
    for isr in ({ONE}, {ONE, TWO}, {ONE, TWO, THREE}):
        in_sync = InSync((ONE, TWO), 7)
        in_sync.propose(proposal(7, ONE, TWO, THREE))
        in_sync.log((ONE, TWO), 7)
        assert in_sync.maximal == {ONE, TWO, THREE}, "the same state again tells nothing"
        in_sync.log(isr, 8)
        assert in_sync.proposal is None
        assert in_sync.maximal == isr
    with pytest.raises(AssertionError):
        in_sync.log((ONE,), 7)


def test_a_refusal_ends_it_and_an_old_one_does_not() -> None:
    in_sync = InSync((ONE,), 7)
    old, new = proposal(6, ONE, TWO), proposal(7, ONE, TWO)
    in_sync.propose(new)
    in_sync.refused(old, 0)
    in_sync.unanswered(old, 0)
    assert in_sync.maximal == {ONE, TWO}
    in_sync.refused(new, 0)
    assert (in_sync.proposal, in_sync.maximal) == (None, {ONE})


def test_a_refusal_is_not_believed_while_an_earlier_attempt_may_be_on_its_way() -> None:
    in_sync = InSync((ONE,), 7)
    asked = proposal(7, ONE, TWO)
    in_sync.propose(asked)
    in_sync.unanswered(asked, 100)
    in_sync.refused(asked, 100 + DOUBT_MS - 1)
    assert in_sync.maximal == {ONE, TWO}
    in_sync.refused(asked, 100 + DOUBT_MS)
    assert in_sync.maximal == {ONE}
    again = proposal(7, ONE, THREE)
    in_sync.propose(again)
    in_sync.refused(again, 100 + DOUBT_MS)
    assert in_sync.maximal == {ONE}, "the next proposal begins without doubts"


def test_the_doubt_about_a_proposal_ends_with_it() -> None:
    in_sync = InSync((ONE,), 7)
    first, second = proposal(7, ONE, TWO), proposal(8, ONE, TWO)
    in_sync.propose(first)
    in_sync.unanswered(first, 100)
    in_sync.log((ONE,), 8)
    in_sync.propose(second)
    in_sync.refused(second, 101)
    assert in_sync.proposal is None
