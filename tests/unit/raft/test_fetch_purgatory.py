from streamlog.raft.leader import FetchPurgatory
from streamlog.raft.messages import RaftFetchRequest
from tests.unit.lone_member import key


def test_told_once() -> None:
    """Each replica hears of a high watermark as soon as there is one that it was not told."""
    waiting = FetchPurgatory()

    def tokens(*, log_end: int = 5, high_watermark: int = 3, now_ms: int = 0) -> list[object]:
        due = waiting.take_due(log_end=log_end, high_watermark=high_watermark, now_ms=now_ms)
        return [fetch.token for fetch in due]

    request = RaftFetchRequest(1, key(2), 5, 1, wait_ms=100)
    assert waiting.deadline_ms is None
    waiting.hold("a", request, 0)
    assert waiting.deadline_ms == 100
    assert tokens() == ["a"]
    waiting.hold("b", request, 0)
    waiting.hold("c", RaftFetchRequest(1, key(3), 5, 1, wait_ms=50), 0)
    assert tokens() == ["c"]
    assert tokens(high_watermark=4) == ["b"]
    waiting.hold("d", request, 0)
    assert tokens(high_watermark=4, log_end=6) == ["d"]
    waiting.hold("e", request, 0)
    assert tokens(high_watermark=4, now_ms=99) == []
    assert tokens(high_watermark=4, now_ms=100) == ["e"]
    assert waiting.take_all() == []


def test_only_the_fetch_of_the_token_is_dropped() -> None:
    waiting = FetchPurgatory()
    waiting.hold("a", RaftFetchRequest(1, key(2), 5, 1, wait_ms=100), 0)
    waiting.hold("b", RaftFetchRequest(1, key(3), 5, 1, wait_ms=100), 0)
    waiting.drop("a")
    assert [fetch.token for fetch in waiting.take_all()] == ["b"]
