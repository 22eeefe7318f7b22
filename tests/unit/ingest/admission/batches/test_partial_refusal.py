from streamlog.ingest.admission.batches.partial_refusal import sift
from streamlog.ingest.pub_ack_format import Replies, iter_replies, pack_reply
from streamlog.record.codec import RecordRun


def test_what_goes_on_and_what_is_refused() -> None:
    run = RecordRun()
    for i in range(4):
        run.append(None, b"%d" % i, [(b"subject", b"s.%d" % i), (b"Nats-Msg-Id", b"id-%d" % i)])
    packed = b"".join(pack_reply(i, b"reply-%d" % i) for i in (0, 1, 3))
    sifted = sift(run, Replies(packed, 3), {0, 3})
    assert run.count == 0
    assert [(k.position, k.subject, k.reply, k.record.value) for k in sifted.kept] == [
        (1, b"s.1", b"reply-1", b"1"),
        (2, b"s.2", b"", b"2"),
    ]
    assert sifted.kept[0].header_block == b"NATS/1.0\r\nNats-Msg-Id: id-1\r\n\r\n"
    assert sifted.kept[0].headers == [(b"subject", b"s.1"), (b"Nats-Msg-Id", b"id-1")]
    assert sifted.refused.reply_count == 2
    assert [reply for _, reply in iter_replies(sifted.refused.packed)] == [b"reply-0", b"reply-3"]
