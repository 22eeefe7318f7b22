from streamlog.ingest.admission.publish_headers import AckPolicy
from streamlog.ingest.pub_ack_format import Replies, iter_replies, pack_reply, select_replies

PACKED = pack_reply(0, b"a") + pack_reply(2, b"_INBOX.b") + pack_reply(70_000, b"")
REPLIES = Replies(PACKED, 3)


def test_round_trip() -> None:
    assert list(iter_replies(PACKED)) == [(0, b"a"), (2, b"_INBOX.b"), (70_000, b"")]
    assert list(iter_replies(b"")) == []


def test_without_wishes_all_are_answered_at_the_default() -> None:
    assert (
        select_replies(REPLIES, AckPolicy.COMMITTED, default=AckPolicy.COMMITTED, wishes={})
        == REPLIES
    )
    assert (
        select_replies(REPLIES, AckPolicy.APPENDED, default=AckPolicy.COMMITTED, wishes={})
        == Replies()
    )


def test_wishes_are_granted() -> None:
    wishes = {2: AckPolicy.APPENDED, 70_000: AckPolicy.NEVER}
    late = select_replies(REPLIES, AckPolicy.COMMITTED, default=AckPolicy.COMMITTED, wishes=wishes)
    early = select_replies(REPLIES, AckPolicy.APPENDED, default=AckPolicy.COMMITTED, wishes=wishes)
    assert (late, early) == (
        Replies(pack_reply(0, b"a"), 1),
        Replies(pack_reply(2, b"_INBOX.b"), 1),
    )
