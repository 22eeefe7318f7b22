from uuid import UUID

import pytest

from streamlog.control.leaders.local_leader import message_of
from streamlog.control.leaders.node_requests import (
    Fields,
    NodeAnswer,
    NodeRequests,
    decode_answer,
    encode_answer,
    encode_error,
    encode_request,
    is_node_request,
)
from streamlog.control.leaders.partition_state import LeaderPartitionState
from streamlog.errors import (
    CorruptData,
    InvalidRequest,
    MessageErased,
    NodeUnreachable,
    NotLeader,
    RequestTimedOut,
    StreamlogError,
)
from streamlog.metadata.commands import DescribeCluster, encode_command
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.quorum.peers import PeerAddress
from streamlog.model import NodeId
from tests.node_registration import started

TWO = NodeId(2)


@pytest.mark.parametrize("data", [b"", b"\n", b"plain\nlines\n", bytes(range(256))])
def test_an_answer_travels_with_a_messages_bytes(data: bytes) -> None:
    answer = NodeAnswer({"sequence": 7, "subject": "a\nb"}, data)
    assert decode_answer(encode_answer(answer)) == answer


def test_errors_travel_by_their_class() -> None:
    for error in (MessageErased("gone"), NotLeader("node 2 leads"), StreamlogError("busy")):
        with pytest.raises(type(error), match=str(error)) as raised:
            decode_answer(encode_error(error))
        assert type(raised.value) is type(error)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]\n", b"{\n", b"\xff\n", b'{"error":7}\n', b"null\n"]
)
def test_what_is_no_answer(data: bytes) -> None:
    with pytest.raises(CorruptData):
        decode_answer(data)


def test_a_request_is_told_from_a_command() -> None:
    assert is_node_request(encode_request("STATE", {"partitions": []}))
    assert not is_node_request(encode_command(DescribeCluster()))
    assert not is_node_request(b"")


def test_what_is_no_message() -> None:
    for fields in ({}, {"header_block": 7}, {"header_block": "", "colour": "red"}):
        with pytest.raises((KeyError, TypeError, ValueError)):
            message_of(NodeAnswer(fields))


def test_a_state_travels() -> None:
    state = LeaderPartitionState(1, 9, 1000, 5, None, {NodeId(2): 3})
    assert LeaderPartitionState.of_json(state.json()) == state
    with pytest.raises(KeyError):
        LeaderPartitionState.of_json({})


class Wire:
    """In the place of sockets."""

    def __init__(self) -> None:
        self.far: NodeRequests
        self.error: StreamlogError | None = None
        self.purposes: list[str] = []

    async def command(
        self, address: PeerAddress, data: bytes, timeout_ms: int, *, purpose: str = ""
    ) -> bytes:
        self.purposes.append(purpose)
        if self.error is not None:
            raise self.error
        return await self.far.answer(data)


@pytest.fixture
def wire() -> Wire:
    wire = Wire()
    wire.far = requests(wire)
    return wire


def requests(wire: Wire) -> NodeRequests:
    image = MetadataImage("c")
    decision = started(image, TWO, UUID(int=1))
    image = image.apply_all(decision.records, offset=0, epoch=1)
    return NodeRequests(wire, lambda: image)  # type: ignore[arg-type]


async def test_a_node_asks_another(wire: Wire) -> None:
    async def double(fields: Fields) -> NodeAnswer:
        return NodeAnswer({"number": 2 * int(fields["number"])}, b"data")

    wire.far.register("DOUBLE", double)
    near = requests(wire)
    assert await near.ask(TWO, "DOUBLE", {"number": 4}, timeout_s=1) == ({"number": 8}, b"data")
    for fields in ({}, {"number": "x"}, {"number": None}):
        with pytest.raises(InvalidRequest, match="not a request of a node"):
            await near.ask(TWO, "DOUBLE", fields, timeout_s=1)
    with pytest.raises(InvalidRequest, match="NONSENSE"):
        await near.ask(TWO, "NONSENSE", {}, timeout_s=1)
    with pytest.raises(NodeUnreachable, match="not registered"):
        await near.ask(NodeId(9), "DOUBLE", {}, timeout_s=1)


@pytest.mark.parametrize("data", [b"", b"\xff", b'{"request":7', b'{"request":"A"}', b"[]"])
async def test_what_is_no_request_costs_an_answer(wire: Wire, data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        decode_answer(await wire.far.answer(data))


async def test_a_fault_of_ours_is_an_error_of_the_answer(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(fields: Fields) -> NodeAnswer:
        raise ZeroDivisionError

    wire.far.register("FAIL", fail)
    with pytest.raises(StreamlogError, match="internal error: ZeroDivisionError"):
        await requests(wire).ask(TWO, "FAIL", {}, timeout_s=1)
    assert "another node's request failed" in caplog.text


async def test_a_connection_that_broke_may_have_done_it(wire: Wire) -> None:
    near = requests(wire)
    wire.error = NodeUnreachable("reset")
    with pytest.raises(RequestTimedOut, match="whether it was done is not known"):
        await near.ask(TWO, "PURGE", {}, timeout_s=1)
    wire.error = NodeUnreachable("refused")
    wire.error.refused = True
    with pytest.raises(NodeUnreachable, match="refused"):
        await near.ask(TWO, "PURGE", {}, timeout_s=1)
