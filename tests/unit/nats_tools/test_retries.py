import pytest

from streamlog.nats_tools.publisher import Published
from streamlog.nats_tools.retries import ANSWER_TIMEOUT_S, REFUSED_PAUSE_S, UnackedMessages


def messages(count: int = 0) -> UnackedMessages:
    made = UnackedMessages(0.0, gap_s=0.1)
    for _ in range(count):
        made.publish(0.0)
    return made


def ack(sequence: int, *, duplicate: bool = False) -> Published:
    return Published("s", sequence, duplicate)


def test_what_is_not_answered_is_due_again_and_again() -> None:
    made = messages(2)
    made.acked(0, ack(1), 0.01)
    assert made.due(ANSWER_TIMEOUT_S - 0.01, 10) == []
    assert made.due(ANSWER_TIMEOUT_S, 10) == [1]
    assert made.due(ANSWER_TIMEOUT_S + 0.1, 10) == []
    assert made.due(2 * ANSWER_TIMEOUT_S, 10) == [1]
    assert (made.retries, made.under_way) == (2, 1)


def test_what_is_refused_is_due_sooner() -> None:
    made = messages(1)
    made.refused(0, 0.0)
    assert made.due(REFUSED_PAUSE_S, 10) == [0]
    made.acked(0, ack(1), 1.0)
    made.refused(0, 1.1)  # late, of the first try
    assert made.due(100.0, 10) == []


def test_few_are_due_at_once_and_none_is_forgotten() -> None:
    made = messages(20)
    found = [made.due(ANSWER_TIMEOUT_S, 8) for _ in range(4)]
    assert [len(part) for part in found] == [8, 8, 4, 0]
    assert sorted(number for part in found for number in part) == list(range(20))


def test_a_gap_is_from_ack_to_ack() -> None:
    made = messages(4)
    assert made.acked(0, ack(1), 0.05) is None
    gap = made.acked(1, ack(2), 1.05)
    assert gap is not None
    assert (gap.began_s, gap.seconds) == (0.05, pytest.approx(1.0))
    assert made.acked(2, ack(3), 1.06) is None
    last = made.end(3.06)  # one is still under way
    assert last is not None
    assert last.seconds == pytest.approx(2.0)
    assert made.verdict().longest_gap_s == pytest.approx(2.0)


def test_nothing_under_way_is_no_gap() -> None:
    made = messages(1)
    made.acked(0, ack(1), 0.01)
    assert made.end(9.0) is None
    assert made.verdict().longest_gap_s == 0.01


def test_a_publisher_that_did_not_run_says_so() -> None:
    made = messages(1)
    for now in (0.01, 0.02, 0.62):
        made.tick(now)
    gap = made.acked(0, ack(1), 0.63)
    assert gap is not None
    assert gap.stalled_s == pytest.approx(0.6)


def test_each_acked_message_has_a_sequence_of_its_own() -> None:
    made = messages(3)
    for number, sequence in enumerate((7, 8, 7)):  # the first 7 was lost, and given again
        made.acked(number, ack(sequence), 0.0)
    verdict = made.verdict()
    assert (verdict.acknowledged, verdict.lost, verdict.stored_twice) == (3, 1, 0)


def test_a_second_ack_of_another_sequence_is_a_second_copy() -> None:
    made = messages(2)
    made.acked(0, ack(1), 0.0)
    made.acked(0, ack(1, duplicate=True), 0.0)
    made.acked(1, ack(2), 0.0)
    made.acked(1, ack(3), 0.0)
    verdict = made.verdict()
    assert (verdict.duplicates, verdict.stored_twice, verdict.lost) == (1, 1, 0)
    assert (verdict.published, verdict.unanswered) == (2, 0)
