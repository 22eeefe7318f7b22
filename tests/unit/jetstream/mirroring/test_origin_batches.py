"""Records of mirrored and sourced messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.jetstream.mirroring.origin_batches import (
    MISSING_BETWEEN_MAX,
    MISSING_FIRST_MAX,
    TooManyMissing,
    headers_of,
    mirrored_batches,
    source_place,
    sourced_headers,
)
from streamlog.jetstream.mirroring.origin_reader import OriginMessage, delivery_of
from streamlog.metadata.stream.stream_origin import StreamOrigin, Transform
from streamlog.record.batch import batches, check_batch, read_header
from streamlog.record.codec import iter_records
from streamlog.record.erasure import erased_by
from streamlog.record.offset_set import OffsetSet


def message(sequence: int, **changes: object) -> OriginMessage:
    subject = f"o.{sequence}"
    made = OriginMessage(subject, sequence, 1_000 + sequence, b"", b"%d" % sequence, subject)
    return made._replace(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("end_offset", "most"), [(0, MISSING_FIRST_MAX), (10, MISSING_BETWEEN_MAX)]
)
def test_no_more_is_left_out_than_a_log_bears(end_offset: int, most: int) -> None:
    def made(sequence: int) -> list[bytes]:
        return list(mirrored_batches([message(sequence)], end_offset, leader_epoch=0))

    sequence = end_offset + most + 1
    assert read_header(made(sequence)[-1]).next_offset == sequence
    with pytest.raises(TooManyMissing, match="sequences are missing"):
        made(sequence + 1)


@given(st.sets(st.integers(1, 60)).map(sorted), st.integers(0, 30), st.sampled_from([0, 1, 3]))
def test_each_has_the_offset_of_its_sequence_and_all_else_counts_as_erased(
    sequences: list[int], end_offset: int, compression: int
) -> None:
    data = b"".join(
        mirrored_batches(
            [message(it) for it in sequences],
            end_offset,
            leader_epoch=3,
            compression=compression,
        )
    )
    next_offset, found, erased = end_offset, dict[int, bytes](), OffsetSet()
    for header, batch in batches(data):
        check_batch(batch)
        assert header.base_offset == next_offset, "dense"
        assert header.leader_epoch == 3
        next_offset = header.next_offset
        gone = erased_by(batch, header)
        if gone is not None:
            erased.update(gone)
            erased.add(header.base_offset)
        elif header.record_count:
            assert header.is_published
            for record in iter_records(batch):
                assert record.timestamp_ms == 1_001 + record.offset
                assert record.headers == ((("subject", b"o.%d" % (record.offset + 1))),)
                found[record.offset] = record.value or b""
    wanted = [it for it in sequences if it > end_offset]
    assert found == {it - 1: b"%d" % it for it in wanted}
    if wanted:
        assert next_offset == wanted[-1]
        missing = set(range(end_offset, next_offset)) - found.keys()
        begin = wanted[0] - 1 if end_offset == 0 else end_offset
        assert set(erased) == {it for it in missing if it >= begin}


def test_large_gap_is_a_few_batches() -> None:
    data = b"".join(mirrored_batches([message(5_000_000)], 10, leader_epoch=1))
    made = list(batches(data))
    assert len(data) < 10_000
    assert made[-1][0].next_offset == 5_000_000
    erased = OffsetSet()
    for header, batch in made:
        gone = erased_by(batch, header)
        if gone is not None:
            erased.update(gone)
            erased.add(header.base_offset)
    assert erased.count(0, 2**63) == 5_000_000 - 11


def test_large_gap_before_the_first_message_names_nothing() -> None:
    made = list(batches(b"".join(mirrored_batches([message(2**33)], 0, leader_epoch=1))))
    assert [header.is_control for header, _ in made] == [False] * 5
    assert [header.next_offset for header, _ in made] == [2**31, 2**32, 3 * 2**31, 2**33 - 1, 2**33]


def test_keys() -> None:
    keyed = message(1, header_block=b"NATS/1.0\r\nStreamlog-Key: k\r\n\r\n")
    for is_keyed, expected in ((False, [b"k", None]), (True, [b"k", b"o.2"])):
        data = mirrored_batches([keyed, message(2)], 0, leader_epoch=1, is_keyed=is_keyed)
        assert [it.key for batch in data for it in iter_records(batch)] == expected


def test_headers_keep_their_order_and_repetitions() -> None:
    block = b"NATS/1.0\r\nA: 1\r\nB:2\r\nA: 3: x\r\n\r\n"
    assert headers_of(message(1, header_block=block)) == [
        (b"subject", b"o.1"), (b"A", b"1"), (b"B", b"2"), (b"A", b"3: x"),
    ]  # fmt: skip


def test_source_header_names_place_and_origin_as_jetstream_does() -> None:
    block = b"NATS/1.0\r\nNats-Expected-Stream: O\r\nNats-Stream-Source: Z 1 > > z\r\nA: 1\r\n\r\n"
    origin = StreamOrigin("O", filter_subject="o.>", api="$JS.hub.API")
    headers = sourced_headers(origin, message(7, header_block=block, subject="new"))
    assert headers == [
        (b"subject", b"new"), (b"A", b"1"), (b"Nats-Stream-Source", b"O:$JS.hub.API 7 o.> > o.7"),
    ]  # fmt: skip
    made = StreamOrigin("O", transforms=(Transform("o.1", "x"), Transform("o.2", "")))
    ((_, said),) = [it for it in sourced_headers(made, message(8)) if it[0] != b"subject"]
    assert said == b"O 8 o.1\x0co.2 x\x0c> o.8"
    for it in (origin, made):
        value = sourced_headers(it, message(9))[-1][1] or b""
        assert source_place(value) == (it.index_name, 9, "")
        known = sourced_headers(it, message(9)._replace(identity="X5bzhHdW"))[-1][1] or b""
        assert known == value + b" X5bzhHdW"
        assert source_place(known) == (it.index_name, 9, "X5bzhHdW")
    assert source_place(b"O 4 o.3 > o.3 tNctYWte") == ("O o.3 >", 4, "tNctYWte")  # nats-server 2.15
    assert source_place(b"O x o.3 > o.3") is None
    assert source_place(b"") is None


def test_reply_subjects_of_both_formats() -> None:
    assert delivery_of(b"$JS.ACK.O.c.1.22.3.44.5") == (b"O", b"c", 22, 3, 44, 5)
    assert delivery_of(b"$JS.ACK.hub.acc.O.c.1.22.3.44.5") == (b"O", b"c", 22, 3, 44, 5)
    assert delivery_of(b"$JS.ACK.hub.acc.O.c.1.22.3.44.5.token") == (b"O", b"c", 22, 3, 44, 5)
    for other in (
        b"",
        b"$JS.ACK.O.c.1.22.3.44",
        b"$JS.ACK.O.c.1.a.3.44.5",
        b"_INBOX.1.2.3.4.5.6.7.8",
    ):
        assert delivery_of(other) is None
