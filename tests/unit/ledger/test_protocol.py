"""What is said over NATS: subjects, headers, answers, blocks in parts, signed requests."""

import itertools
import time
from dataclasses import dataclass, field

import pytest

from streamlog.clock import wall_ms
from streamlog.errors import (
    CorruptBlock,
    CorruptData,
    InvalidRequest,
    InvalidSignature,
    OffsetOutOfRange,
    StaleConfiguration,
)
from streamlog.ledger.assembly import Assembly
from streamlog.ledger.channel.broadcast import BroadcastAck
from streamlog.ledger.core.chain import genesis_block
from streamlog.ledger.core.channel_config import ChannelConfig, OrderingNode
from streamlog.ledger.core.encoding import encode_block
from streamlog.ledger.core.entry import Message, configuration
from streamlog.ledger.core.signing import Signer
from streamlog.ledger.deliver import AGE_MS_MAX, DeliverRequest, check_reader, sign_request
from streamlog.ledger.protocol import (
    NUMBER_HEADER,
    PART_HEADER,
    ack_json,
    answer_of,
    error_json,
    headers_of,
    message_of,
    subject,
)
from streamlog.record.codec import Record

ALICE, BOB = Signer("alice", b"a" * 32), Signer("bob", b"b" * 32)
CONFIG = ChannelConfig(channel="c")


def block_bytes() -> bytes:
    message = configuration(CONFIG)
    block = genesis_block(Record(0, 5, message.key, message.value, message.headers))
    assert block is not None
    return encode_block(block)


def test_subjects() -> None:
    assert subject("c", "info") == "ledger.c.info"
    assert subject("c", "deliver", "node-1.example") == "ledger.c.deliver.node-1.example"
    for channel, node in (("a.b", ""), ("", ""), ("*", ""), ("c", "a b"), ("c", ".a"), ("c", ">")):
        with pytest.raises(InvalidRequest, match="is no"):
            subject(channel, "info", node)


@pytest.mark.parametrize(
    "message",
    [
        Message(None, b""),
        Message(b"key", b"value"),
        Message(b"", b"value", (("Name", b"v"), ("name", b"w"))),
        configuration(CONFIG),
    ],
)
def test_a_message_is_the_same_on_the_other_side(message: Message) -> None:
    assert message_of(message.value or b"", headers_of(message)) == message


@pytest.mark.parametrize(
    "message",
    [
        Message(b"\xff", b""),
        Message(None, b"", (("a", b"\xff"),)),
        Message(None, b"", (("a", b"1"), ("a", b"2"))),
    ],
)
def test_what_headers_cannot_say_is_refused(message: Message) -> None:
    with pytest.raises(InvalidRequest):
        headers_of(message)


def test_answers() -> None:
    assert answer_of(ack_json(BroadcastAck("c", 7), "n")) == {
        "channel": "c",
        "offset": 7,
        "node": "n",
    }
    with pytest.raises(StaleConfiguration, match=r"^one line$"):
        answer_of(error_json(StaleConfiguration("one\n  line")))
    with pytest.raises(InvalidRequest, match="outside"):
        answer_of(error_json(OffsetOutOfRange(5, 0, 3)))
    for other in (b"", b"[]", b"nonsense"):
        with pytest.raises(CorruptData):
            answer_of(other)


def test_a_block_in_parts_is_put_together() -> None:
    data, assembly = block_bytes(), Assembly(None)
    cuts = [0, 10, 50, len(data)]
    for number, (start, end) in enumerate(itertools.pairwise(cuts)):
        headers = {NUMBER_HEADER: "0", PART_HEADER: f"{number}/3"}
        found = assembly.take(headers, data[start:end])
        assert (found is not None) == (number == 2)
    assert found is not None
    assert found.encoded == data
    assert found.configuration == CONFIG
    assert assembly.next == 1


@pytest.mark.parametrize(
    ("headers", "cut"),
    [
        ({NUMBER_HEADER: "1"}, None),  # a gap
        ({NUMBER_HEADER: "0", PART_HEADER: "1/2"}, None),  # a part is missing
        ({NUMBER_HEADER: "0"}, -1),  # cut
        ({NUMBER_HEADER: "zero"}, None),
        ({}, None),
    ],
)
def test_what_is_not_the_next_block_is_refused(headers: dict[str, str], cut: int | None) -> None:
    with pytest.raises(CorruptBlock):
        Assembly(0).take(headers, block_bytes()[:cut])


def test_a_block_under_another_number_is_refused() -> None:
    with pytest.raises(CorruptBlock, match="block 0 came as block 3"):
        Assembly(3).take({NUMBER_HEADER: "3"}, block_bytes())


@dataclass
class Asked:
    data: bytes
    reply: str
    headers: dict[str, str] = field(default_factory=dict)


def asked(signer: Signer, *, time_ms: int, reply: str = "inbox") -> tuple[DeliverRequest, Asked]:
    request = DeliverRequest(time_ms=time_ms)
    data = request.model_dump_json().encode()
    return request, Asked(data, reply, sign_request("c", data, reply, signer))


def test_readers_are_known_by_their_signatures() -> None:
    config = ChannelConfig(channel="c", readers=(ALICE.identity,))
    now = wall_ms()
    assert abs(now - time.time() * 1000) < 5_000
    check_reader(None, DeliverRequest(), Asked(b"", "inbox"), now)
    check_reader(CONFIG, DeliverRequest(), Asked(b"", "inbox"), now)
    check_reader(config, *asked(ALICE, time_ms=now), now)
    for problem, (request, wrong) in (
        ("sign the request", (DeliverRequest(), Asked(b"", "inbox"))),
        ("no reader of channel 'c'", asked(BOB, time_ms=now)),
        ("not that of 'alice'", asked(Signer("alice", b"b" * 32), time_ms=now)),
        ("ms from the node's", asked(ALICE, time_ms=now - AGE_MS_MAX - 1)),
        ("ms from the node's", asked(ALICE, time_ms=now + AGE_MS_MAX + 1)),
    ):
        with pytest.raises(InvalidSignature, match=problem):
            check_reader(config, request, wrong, now)


def test_an_overheard_request_brings_nothing_to_anybody_else() -> None:
    config = ChannelConfig(channel="c", readers=(ALICE.identity,))
    now = wall_ms()
    request, overheard = asked(ALICE, time_ms=now)
    overheard.reply = "inbox of the listener"
    with pytest.raises(InvalidSignature, match="not that of 'alice'"):
        check_reader(config, request, overheard, now)
    overheard.headers["Streamlog-Ledger-Signature"] = "!"
    with pytest.raises(InvalidSignature, match="base64"):
        check_reader(config, request, overheard, now)


def test_consenters_may_read() -> None:
    node = OrderingNode(name="bob", public_key=BOB.identity.public_key)
    config = ChannelConfig(channel="c", readers=(ALICE.identity,), consenters=(node,))
    now = wall_ms()
    check_reader(config, *asked(BOB, time_ms=now), now)
