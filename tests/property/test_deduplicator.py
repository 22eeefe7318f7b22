"""The deduplicator beside a naive twin that keeps every id for ever with its time."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.ingest.admission.deduplicator import Deduplicator

WINDOW_MS = 800


@dataclass
class Naive:
    """A log as a list of ids; the window is a look back over all of it."""

    log: list[tuple[bytes, int]] = field(default_factory=list)

    def first(self, message_id: bytes, now_ms: int, memory_ms: int) -> int | None:
        found = [
            offset
            for offset, (known, stored_ms) in enumerate(self.log)
            if known == message_id and now_ms - stored_ms <= memory_ms
        ]
        return found[-1] if found else None


steps = st.lists(
    st.tuples(
        st.sampled_from(["publish", "publish", "publish", "seal", "fail"]),
        st.sampled_from([b"", b"a", b"b", b"c", b"d"]),
        st.integers(0, 300),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(steps)
def test_like_the_naive_twin(todo: list[tuple[str, bytes, int]]) -> None:
    deduplicator, naive = Deduplicator("s", duplicate_window_ms=WINDOW_MS), Naive()
    now_ms, end, position = 1_000_000, 0, 0  # ``end``: what is appended; above it the open run
    for what, message_id, later_ms in todo:
        now_ms += later_ms
        if what == "seal":
            end, position = end + position, 0
        elif what == "fail":
            deduplicator.abort(end)
            del naive.log[end:]
            position = 0
        else:
            block = b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % message_id
            verdict = deduplicator.admit(
                block, b"s", b"", position, log_end_offset=end, now_ms=now_ms
            )
            sure = naive.first(message_id, now_ms, WINDOW_MS) if message_id else None
            maybe = naive.first(message_id, now_ms, WINDOW_MS * 9 // 8) if message_id else None
            assert verdict.duplicate_of in {sure, maybe}
            assert verdict.store is (verdict.duplicate_of is None)
            if verdict.store:
                naive.log.append((message_id, now_ms))
                position += 1
    known = {i for i, at in naive.log if i and now_ms - at <= WINDOW_MS}
    assert len(known) <= len(deduplicator) <= sum(1 for i, _ in naive.log if i)
