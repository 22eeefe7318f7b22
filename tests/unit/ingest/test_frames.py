import functools
from collections.abc import Callable
from typing import Any

import pytest

from streamlog.errors import FrameTooLarge, MalformedFrame
from streamlog.nats.server_connection import LINE_BYTES_MAX
from streamlog.record.codec import Record, iter_records
from tests.nats_frames import COMPILED, PLAIN, SID, Twin, block, hmsg, msg, records, unpacked
from tests.oracles import codec as codec_oracle
from tests.oracles import collector as collector_oracle

TWINS: list[Any] = [pytest.param(PLAIN, id="plain"), pytest.param(COMPILED, id="compiled")]


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> Twin:
    chosen: Twin = request.param
    return chosen


@pytest.fixture
def bound(twin: Twin) -> Callable[..., tuple[Any, Any]]:
    """Makes a parser and the inflow that SID is bound to."""

    def make(**options: Any) -> tuple[Any, Any]:
        parser = twin.FrameParser()
        inflow = twin.RecordCollector(**{"message_bytes_max": 1 << 20} | options)
        parser.bind(SID, inflow)
        return parser, inflow

    return make


class TestMessages:
    def test_a_message_becomes_a_record(self, bound: Any) -> None:
        parser, inflow = bound()
        assert parser.feed(msg(b"hello")) == [inflow]
        assert records(inflow) == [Record(0, 0, None, b"hello", (("subject", b"orders"),))]
        assert inflow.take_replies() == b""
        assert inflow.take_oversize() == []

    def test_an_inbox_is_answered_but_not_stored(self, bound: Any) -> None:
        parser, inflow = bound()
        parser.feed(msg(b"a") + msg(b"b", reply=b"_INBOX.x.1") + msg(b"c", reply=b"_INBOX.x.2"))
        assert inflow.reply_count == 2
        replies = inflow.take_replies()
        assert list(unpacked(replies)) == [(1, b"_INBOX.x.1"), (2, b"_INBOX.x.2")]
        assert (inflow.reply_count, inflow.take_replies()) == (0, b"")
        assert {record.headers for record in records(inflow)} == {(("subject", b"orders"),)}

    @pytest.mark.parametrize("reply", [b"answers", b"_INBOX", b"_inbox.x", b"r" * 65_535])
    def test_another_reply_is_both(self, bound: Any, reply: bytes) -> None:
        parser, inflow = bound()
        parser.feed(msg(reply=reply))
        assert list(unpacked(inflow.take_replies())) == [(0, reply)]
        (record,) = records(inflow)
        assert record.headers == (("subject", b"orders"), ("reply", reply))

    @pytest.mark.parametrize(
        "subject", [b"a", b"a.b.c", b"x" * 65_536, b"\x0b\x0c\x00\xff", b"a\rb"]
    )
    def test_subjects(self, bound: Any, subject: bytes) -> None:
        """nats-server takes nearly any byte from a publisher, so it must not end our connection."""
        parser, inflow = bound()
        parser.feed(msg(b"v", subject=subject))
        assert records(inflow)[0].headers == (("subject", subject),)

    def test_payloads_that_look_like_frames(self, bound: Any) -> None:
        parser, inflow = bound()
        payloads = [b"", b"\r\n", b"PING\r\n", msg(b"inner"), b"\r\n\r\n", bytes(range(256))]
        parser.feed(b"".join(map(msg, payloads)))
        assert [record.value for record in records(inflow)] == payloads
        assert parser.take_controls() == []

    def test_blanks_and_letters_as_the_protocol_allows(self, bound: Any) -> None:
        parser, inflow = bound()
        parser.feed(b"msg  orders\t3 \t 2 \r\nhi\r\nHmsg orders 3 r 12 12\r\nNATS/1.0\r\n\r\n\r\n")
        assert [record.value for record in records(inflow)] == [b"hi", b""]

    def test_inflows_in_order_of_first_touch(self, twin: Twin) -> None:
        parser = twin.FrameParser()
        inflows = [twin.RecordCollector(message_bytes_max=10, owner=i) for i in range(3)]
        for sid, inflow in enumerate(inflows):
            parser.bind(sid, inflow)
        touched = parser.feed(b"".join(msg(b"v", sid=sid) for sid in (2, 0, 2, 2, 0)))
        assert [inflow.owner for inflow in touched] == [2, 0]
        assert [inflow.run.count for inflow in inflows] == [2, 0, 3]
        assert parser.feed(msg(sid=1) + msg(sid=2)) == [inflows[1], inflows[2]]
        assert parser.feed(b"PING\r\n") == []

    def test_a_sid_that_is_not_ours(self, bound: Any) -> None:
        parser, inflow = bound()
        assert parser.feed(msg(sid=4) + msg(b"mine") + msg(sid=4)) == [inflow]
        assert parser.dropped == 2
        parser.unbind(SID)
        parser.unbind(SID)
        assert parser.feed(msg(b"too late")) == []
        assert parser.dropped == 3
        assert [record.value for record in records(inflow)] == [b"mine"]

    def test_a_sid_that_is_bound_anew(self, twin: Twin, bound: Any) -> None:
        parser, inflow = bound()
        parser.feed(msg(b"first"))
        other = twin.RecordCollector(message_bytes_max=10)
        parser.bind(SID, other)
        assert parser.feed(msg(b"second")) == [other]
        assert (inflow.run.count, other.run.count) == (1, 1)


class TestHeaders:
    def headers(self, bound: Any, header_block: bytes) -> Any:
        parser, inflow = bound()
        assert parser.feed(hmsg(header_block, b"v")) == [inflow]
        (record,) = records(inflow)
        assert record.value == b"v"
        assert record.headers[0] == ("subject", b"orders")
        return record.key, record.headers[1:]

    def test_in_order_and_repeated(self, bound: Any) -> None:
        lines = (b"B: 2", b"A: 1", b"B: 3", b"b:4")
        key, headers = self.headers(bound, block(*lines))
        assert key is None
        assert headers == (("B", b"2"), ("A", b"1"), ("B", b"3"), ("b", b"4"))

    def test_values_lose_leading_blanks_only(self, bound: Any) -> None:
        _, headers = self.headers(bound, block(b"A: \t x y ", b"B:", b"C:  ", b"D:a:b\rc\nd"))
        assert headers == (("A", b"x y "), ("B", b""), ("C", b""), ("D", b"a:b\rc\nd"))

    @pytest.mark.parametrize("name", [b"Streamlog-Key", b"streamlog-key", b"STREAMLOG-KEY"])
    def test_the_key(self, bound: Any, name: bytes) -> None:
        key, headers = self.headers(bound, block(b"A: 1", name + b": k", name + b": other"))
        assert key == b"k"
        assert headers == (("A", b"1"), (name.decode(), b"k"), (name.decode(), b"other"))
        assert self.headers(bound, block(name + b":"))[0] == b""

    def test_a_status_line_with_a_status(self, bound: Any) -> None:
        assert self.headers(bound, b"NATS/1.0 503 No Responders\r\nA: 1\r\n\r\n")[1] == (
            ("A", b"1"),
        )

    @pytest.mark.parametrize(
        ("header_block", "headers"),
        [
            (b"", ()),
            (b"NATS/1.0", ()),
            (b"NATS/1.0\r", ()),
            (b"NATS/1.0\r\n", ()),
            (b"HTTP/1.0\r\nA: 1\r\n\r\n", ()),
            (b"\r\nA: 1\r\n\r\n", ()),
            (b"NATS/1.0\r\nA: 1", ()),
            (b"NATS/1.0\r\nA: 1\r", ()),
            (b"NATS/1.0\r\nA: 1\r\n", (("A", b"1"),)),
            (b"NATS/1.0\r\nA: 1\r\nB: 2", (("A", b"1"),)),
            (b"NATS/1.0\r\nno colon\r\n: no name\r\n:\r\nA: 1\r\n\r\n", (("A", b"1"),)),
            (b"NATS/1.0\r\nA: 1\r\n\r\nB: 2\r\n\r\n", (("A", b"1"),)),
            (b"NATS/1.0\r\nA\xff: 1\r\n\xc3\xa9: 2\r\n\r\n", (("é", b"2"),)),
            (b"NATS/1.0\nA: 1\n\n", ()),
        ],
    )
    def test_what_is_well_formed_of_a_broken_block(
        self, bound: Any, header_block: bytes, headers: Any
    ) -> None:
        assert self.headers(bound, header_block) == (None, headers)

    def test_very_many(self, bound: Any) -> None:
        _, headers = self.headers(bound, block(*(b"A:%d" % i for i in range(5_000))))
        assert headers == tuple(("A", b"%d" % i) for i in range(5_000))


class TestAdmit:
    @pytest.mark.parametrize(
        "line",
        [b"Nats-Msg-Id: 1", b"NATS-X:", b"nats-:", b"Streamlog-Ack: none", b"streamlog-acks: 1"],
    )
    def test_asked_for_a_header_that_asks(self, bound: Any, line: bytes) -> None:
        asked: list[Any] = []

        def admit(*arguments: Any) -> bool:
            asked.append(arguments)
            return True

        parser, inflow = bound(admit=admit)
        parser.feed(msg(b"0") + hmsg(block(b"A: 1", line), b"1", reply=b"r") + msg(b"2"))
        assert asked == [(block(b"A: 1", line), b"orders", b"r", 1)]
        assert all(type(argument) is bytes for argument in asked[0][:3])
        assert [record.value for record in records(inflow)] == [b"0", b"1", b"2"]
        assert list(unpacked(inflow.take_replies())) == [(1, b"r")]

    @pytest.mark.parametrize(
        "line",
        [
            b"Nats",
            b"Nats-Msg-Id",
            b"X-Nats-: 1",
            b"Natsy: 1",
            b"Streamlog-Key: 1",
            b"Streamlog-Ac: 1",
        ],
    )
    def test_not_asked_for_others(self, bound: Any, line: bytes) -> None:
        parser, inflow = bound(admit=pytest.fail)
        parser.feed(hmsg(block(line), b"v"))
        assert inflow.run.count == 1

    def test_a_no_leaves_no_trace(self, bound: Any) -> None:
        positions: list[int] = []
        parser, inflow = bound(admit=lambda *arguments: positions.append(arguments[3]))
        asks = hmsg(block(b"Nats-Msg-Id: 1"), b"v", reply=b"r")
        assert parser.feed(asks + msg(b"kept", reply=b"q") + asks) == [inflow]
        assert positions == [0, 1]
        assert [record.value for record in records(inflow)] == [b"kept"]
        assert list(unpacked(inflow.take_replies())) == [(0, b"q")]
        assert parser.feed(asks) == [inflow]

    def test_it_may_send_the_message_to_another_run(self, bound: Any) -> None:
        others: list[Any] = []
        parser, inflow = bound(admit=lambda *_: others[0])
        other = type(inflow.run)()
        others.append(other)
        asks = hmsg(block(b"Nats-Batch-Id: 1"), b"v", reply=b"r")
        assert parser.feed(asks + msg(b"kept", reply=b"q")) == [inflow]
        assert [record.value for record in records(inflow)] == [b"kept"]
        assert list(unpacked(inflow.take_replies())) == [(0, b"q")]
        sealed = other.seal(base_offset=0, leader_epoch=0, timestamp_ms=0)
        (record,) = iter_records(sealed)
        headers = (("subject", b"orders"), ("reply", b"r"), ("Nats-Batch-Id", b"1"))
        assert (record.value, record.headers) == (b"v", headers)

    def test_it_hears_of_the_subject_that_is_stored(self, bound: Any) -> None:
        subjects: list[bytes] = []

        def admit(*arguments: Any) -> bool:
            subjects.append(arguments[1])
            return True

        parser, inflow = bound(admit=admit)
        inflow.transform = lambda subject: b"of." + subject
        parser.feed(msg(b"a") + hmsg(block(b"Nats-A: 1"), b"b"))
        assert subjects == [b"of.orders"]
        stored = [record.headers[0] for record in records(inflow)]
        assert stored == [("subject", b"of.orders")] * 2

    def test_nobody_to_ask(self, bound: Any) -> None:
        parser, inflow = bound()
        parser.feed(hmsg(block(b"Nats-Msg-Id: 1")))
        assert inflow.run.count == 1

    def test_it_may_rebind_and_take(self, twin: Twin) -> None:
        """Nothing that it does to the parser or the inflow may confuse the parse."""
        parser = twin.FrameParser()
        other = twin.RecordCollector(message_bytes_max=100)

        def admit(*_: Any) -> bool:
            inflow.run.clear()
            inflow.take_replies()
            parser.bind(SID, other)
            return True

        inflow = twin.RecordCollector(message_bytes_max=100, admit=admit)
        parser.bind(SID, inflow)
        data = msg(b"x", reply=b"q") + hmsg(block(b"Nats-A: 1"), b"y", reply=b"r") + msg(b"z")
        assert parser.feed(data) == [inflow, other]
        assert list(unpacked(inflow.take_replies())) == [(0, b"r")]
        assert [record.value for record in records(inflow)] == [b"y"]
        assert [record.value for record in records(other)] == [b"z"]

    def test_its_error_is_not_swallowed(self, bound: Any) -> None:
        def admit(*_: Any) -> bool:
            raise LookupError("a fault of ours")

        parser, inflow = bound(admit=admit)
        assert parser.feed(msg() + hmsg(block(b"Nats-A: 1")) + msg()) == [inflow]
        for call in (parser.take_controls, lambda: parser.feed(msg())):
            with pytest.raises(LookupError, match="fault"):
                call()
        assert inflow.run.count == 1

    def test_a_feed_within_a_feed_is_refused(self) -> None:
        parser = COMPILED.FrameParser()
        inflow = COMPILED.RecordCollector(
            message_bytes_max=100, admit=lambda *_: parser.connection.feed(b"PING\r\n")
        )
        parser.bind(SID, inflow)
        parser.feed(hmsg(block(b"Nats-A: 1")))
        with pytest.raises(RuntimeError, match="within"):
            parser.take_controls()


class TestOversize:
    def test_the_limit_is_exact_and_counts_headers(self, bound: Any) -> None:
        parser, inflow = bound(message_bytes_max=20)
        fits, headers_fit = msg(b"v" * 20, reply=b"a"), hmsg(block(), b"v" * 8, reply=b"b")
        large, headers_large = msg(b"v" * 21, reply=b"c"), hmsg(block(), b"v" * 9)
        assert parser.feed(fits + large + headers_fit + headers_large) == [inflow]
        assert [len(record.value or b"") for record in records(inflow)] == [20, 8]
        assert list(unpacked(inflow.take_replies())) == [(0, b"a"), (1, b"b")]
        assert inflow.oversize_count == 2
        assert inflow.take_oversize() == [b"c", b""]
        assert inflow.oversize_count == 0
        assert inflow.take_oversize() == []

    def test_nobody_is_asked_about_it(self, bound: Any) -> None:
        parser, inflow = bound(message_bytes_max=20, admit=pytest.fail)
        parser.feed(hmsg(block(b"Nats-A: 1"), b"v" * 20))
        assert inflow.take_oversize() == [b""]

    def test_a_reply_that_no_ack_can_hold(self, bound: Any) -> None:
        parser, inflow = bound()
        parser.feed(msg(b"v", reply=b"r" * 65_536))
        assert inflow.take_oversize() == [b"r" * 65_536]
        assert (inflow.run.count, inflow.reply_count) == (0, 0)

    def test_a_run_without_room(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of the plain twin: a compiled one takes no other run than its own, of 256 MiB."""
        small = functools.partial(codec_oracle.RecordRun, bytes_max=200)
        monkeypatch.setattr(collector_oracle, "RecordRun", small)
        parser = PLAIN.FrameParser()
        inflow = PLAIN.RecordCollector(message_bytes_max=1000)
        parser.bind(SID, inflow)
        parser.feed(msg(b"v" * 80) + msg(b"v" * 80, reply=b"late"))
        assert inflow.run.count == 1
        assert inflow.take_oversize() == [b"late"]


class TestKeyed:
    def test_a_message_without_a_key_is_not_stored(self, bound: Any) -> None:
        parser, inflow = bound(admit=lambda *_: True)
        inflow.keyed = True
        keyed = hmsg(block(b"Streamlog-Key: k"), b"v", reply=b"a")
        empty = hmsg(block(b"streamlog-key:"), b"v", reply=b"b")
        asking = hmsg(block(b"Nats-Msg-Id: 1"), b"v", reply=b"c")
        assert parser.feed(keyed + empty + asking + msg(b"v")) == [inflow]
        assert [(it.key, it.value) for it in records(inflow)] == [(b"k", b"v"), (b"", b"v")]
        assert list(unpacked(inflow.take_replies())) == [(0, b"a"), (1, b"b")]
        assert inflow.keyless_count == 2
        assert inflow.take_keyless() == [b"c", b""]
        assert (inflow.keyless_count, inflow.take_keyless()) == (0, [])

    def test_one_without_a_payload_is_a_tombstone(self, bound: Any) -> None:
        parser, inflow = bound()
        deletion = hmsg(block(b"Streamlog-Key: k"))
        parser.feed(deletion)
        inflow.keyed = True
        parser.feed(deletion)
        assert [(it.key, it.value) for it in records(inflow)] == [(b"k", b""), (b"k", None)]


class TestControls:
    def test_each(self, bound: Any) -> None:
        parser, _ = bound()
        parser.feed(
            b"PING\r\nPONG\r\n+OK\r\nINFO {\"a\": 1} \r\n-ERR 'Stale Connection'\r\nping\r\n"
        )
        assert parser.take_controls() == [
            ("PONG", b""),
            ("INFO", b'{"a": 1}'),
            ("ERR", b"Stale Connection"),
        ]
        assert parser.take_controls() == []

    def test_between_messages(self, bound: Any) -> None:
        parser, inflow = bound()
        parser.feed(msg(b"a") + b"PONG\r\n" + msg(b"b"))
        assert inflow.run.count == 2
        assert parser.take_controls() == [("PONG", b"")]

    def test_a_line_of_the_longest_kind(self, bound: Any) -> None:
        parser, _ = bound()
        parser.feed(b"INFO " + b"x" * (LINE_BYTES_MAX - 5) + b"\r\n")
        assert len(parser.take_controls()[0][1]) == LINE_BYTES_MAX - 5


class TestPieces:
    DATA = (
        b'INFO {"max_payload":1}\r\n'
        + msg(b"one", reply=b"r")
        + b"PONG\r\n"
        + hmsg(block(b"Streamlog-Key: k"), b"two", reply=b"_INBOX.1")
        + msg()
        + msg(b"nobody's", sid=9)
        + b"+OK\r\n"
    )

    def test_the_same_in_any_pieces(self, bound: Any) -> None:
        for size in range(1, len(self.DATA) + 1):
            parser, inflow = bound()
            for start in range(0, len(self.DATA), size):
                parser.feed(self.DATA[start : start + size])
                parser.feed(b"")
            assert [record.value for record in records(inflow)] == [b"one", b"two", b""]
            assert list(unpacked(inflow.take_replies())) == [(0, b"r"), (1, b"_INBOX.1")]
            assert [name for name, _ in parser.take_controls()] == ["INFO", "PONG"]
            assert parser.dropped == 1

    def test_a_large_message_in_small_pieces(self, bound: Any) -> None:
        """Each byte is looked at once; were all of it for each piece, this would take minutes."""
        parser, inflow = bound(message_bytes_max=1 << 22)
        data = msg(b"v" * (1 << 22)) + b"INFO " + b"x" * (LINE_BYTES_MAX - 5) + b"\r\n"
        for start in range(0, len(data), 32):
            parser.feed(data[start : start + 32])
        assert [len(record.value or b"") for record in records(inflow)] == [1 << 22]
        assert len(parser.take_controls()) == 1


class TestErrors:
    @pytest.mark.parametrize(
        "line",
        [
            b"",
            b" ",
            b"HELLO",
            b"PINGS",
            b"MS orders 3 0",
            b"MSG",
            b"MSG orders 3",
            b"MSG orders 3 r 0 0",
            b"HMSG orders 3 0",
            b"HMSG orders 3 r 0 0 0",
            b"HMSG orders 3 r 0 0 0 0 0 0",
            b"MSG orders x 0",
            b"MSG orders -3 0",
            b"MSG orders 3 -1",
            b"MSG orders 3 +1",
            b"MSG orders 3 1_0",
            b"MSG orders 3 0x1",
            b"MSG orders 3 \xd9\xa1",
            b"MSG orders 3 1000000000000000000",
            b"MSG orders 99999999999999999999 0",
            b"HMSG orders 3 2 1",
            b"HMSG orders 3 -2 1",
        ],
    )
    def test_lines_that_no_server_writes(self, bound: Any, line: bytes) -> None:
        parser, _ = bound()
        with pytest.raises(MalformedFrame):
            parser.feed(line + b"\r\n")
        with pytest.raises(MalformedFrame):
            parser.feed(b"PING\r\n")

    @pytest.mark.parametrize(
        "data", [b"PING\n", b"\n", b"MSG orders 3 2\r\nabcPING\r\n", b"MSG a 3 0\r\n\n\r"]
    )
    def test_ends_that_are_not_crlf(self, bound: Any, data: bytes) -> None:
        parser, _ = bound()
        with pytest.raises(MalformedFrame, match="CRLF"):
            parser.feed(data)

    def test_a_message_over_the_limit(self, twin: Twin) -> None:
        at_limit, above = msg(b"v" * 100), msg(b"v" * 101)
        parser = twin.FrameParser(frame_bytes_max=100)
        assert parser.feed(at_limit) == []
        assert parser.dropped == 1
        with pytest.raises(FrameTooLarge, match="101"):
            parser.feed(above[:20])

    def test_the_largest_number(self, bound: Any) -> None:
        parser, _ = bound()
        with pytest.raises(FrameTooLarge):
            parser.feed(b"HMSG orders 3 999999999999999999 999999999999999999\r\n")

    @pytest.mark.parametrize("size", [LINE_BYTES_MAX + 2, 1000])
    def test_a_line_without_end(self, bound: Any, size: int) -> None:
        parser, _ = bound()
        with pytest.raises(FrameTooLarge, match="line"):
            for _ in range(0, LINE_BYTES_MAX + size, size):
                parser.feed(b"x" * size)

    def test_a_line_of_one_byte_too_many(self, bound: Any) -> None:
        parser, _ = bound()
        with pytest.raises(FrameTooLarge, match="line"):
            parser.feed(b"INFO " + b"x" * (LINE_BYTES_MAX - 4) + b"\r\n")

    def test_what_came_before_an_error_is_handed_out(self, bound: Any) -> None:
        parser, inflow = bound()
        good, bad = msg(b"good", reply=b"r"), b"rubbish\r\n"
        assert parser.feed(b"PONG\r\n" + good + bad + msg()) == [inflow]
        assert parser.take_controls() == [("PONG", b"")]
        with pytest.raises(MalformedFrame, match="rubbish"):
            parser.take_controls()
        assert [record.value for record in records(inflow)] == [b"good"]
        assert list(unpacked(inflow.take_replies())) == [(0, b"r")]

    def test_controls_before_an_error_are_handed_out(self, bound: Any) -> None:
        parser, _ = bound()
        assert parser.feed(b"-ERR 'Bye'\r\nrubbish\r\n") == []
        assert parser.take_controls() == [("ERR", b"Bye")]
        with pytest.raises(MalformedFrame, match="rubbish"):
            parser.feed(b"PING\r\n")
