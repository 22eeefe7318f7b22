"""How late NATS is: one late answer does not count, and one that is missing does after a while."""

from streamlog.jetstream.connection import HANGS_S, NatsLatency


class Story:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.latency = NatsLatency(lambda: self.now_s)

    def answered_after(self, seconds: float) -> float:
        self.latency.asked()
        self.now_s += seconds
        self.latency.answered()
        return self.latency.seconds


def test_one_late_answer_does_not_count() -> None:
    story = Story()
    assert [story.answered_after(it) for it in (0.5, 4.0, 0.5, 4.0, 3.0, 0.5)] == [
        0.0, 0.5, 0.5, 0.5, 3.0, 0.5
    ]  # fmt: skip


def test_an_answer_that_is_awaited_counts_as_far_as_it_has_come() -> None:
    story = Story()
    story.answered_after(4.0)
    story.latency.asked()
    story.now_s += 3.0
    assert story.latency.seconds == 3.0
    story.now_s += 3.0
    assert story.latency.seconds == 6.0


def test_a_server_that_hangs_is_told_of_without_another_answer() -> None:
    story = Story()
    story.answered_after(0.0)
    story.latency.asked()
    story.now_s += HANGS_S - 1
    assert story.latency.seconds == 0.0
    story.now_s += 2
    assert story.latency.seconds == HANGS_S + 1
    story.latency.lost()
    assert story.latency.seconds == 0.0
