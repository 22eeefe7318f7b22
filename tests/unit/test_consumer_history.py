"""What the history of consumers must find, and what it must not."""

import pytest

from tests.consumer_history import BrokenPromise, ConsumerHistory, ConsumerId, MessageId, Promises

STREAM = "s"
OLD, NEW = ConsumerId("c", 1), ConsumerId("c", 2)


@pytest.fixture
def history() -> ConsumerHistory:
    """Of one consumer that wants all, and of ten messages."""
    history = ConsumerHistory(clients_stay=True)
    history.created(OLD, Promises(stream_id=STREAM))
    for offset in range(10):
        history.publish(MessageId(STREAM, 0, offset), STREAM)
    return history


def missing(history: ConsumerHistory, consumer: ConsumerId) -> str:
    try:
        history.check_the_end([consumer], now_ms=0, slack_ms=0)
    except BrokenPromise as error:
        return str(error)
    return ""


def test_what_was_never_delivered_is_found(history: ConsumerHistory) -> None:
    assert "was never delivered" in missing(history, OLD)


def test_a_reset_that_comes_late_may_find_the_next_consumer_of_its_name(
    history: ConsumerHistory,
) -> None:
    """It was asked for the one before, which was deleted meanwhile."""
    history.reset_asked("c", 10)
    history.created(NEW, Promises(stream_id=STREAM))
    assert missing(history, NEW) == ""
    history.publish(MessageId(STREAM, 0, 10), STREAM)
    assert "offset=10" in missing(history, NEW)


def test_a_reset_that_is_answered_finds_no_later_consumer(history: ConsumerHistory) -> None:
    asked = history.reset_asked("c", 10)
    history.reset_done(OLD, 10, asked)
    assert missing(history, OLD) == ""
    history.created(NEW, Promises(stream_id=STREAM))
    assert "was never delivered" in missing(history, NEW)
    history.reset_asked("d", 10)
    assert "was never delivered" in missing(history, NEW)


def test_a_reset_that_does_not_come_any_more_finds_no_later_consumer(
    history: ConsumerHistory,
) -> None:
    asked = history.reset_asked("c", 10)
    history.reset_is_over("c", asked)
    history.created(NEW, Promises(stream_id=STREAM))
    assert "was never delivered" in missing(history, NEW)


def test_a_reset_that_is_refused_has_found_no_later_consumer(history: ConsumerHistory) -> None:
    asked = history.reset_asked("c", 10)
    history.created(NEW, Promises(stream_id=STREAM))
    assert missing(history, NEW) == ""
    history.reset_refused("c", asked)
    assert "was never delivered" in missing(history, NEW)
