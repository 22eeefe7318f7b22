import pytest

from streamlog.errors import CorruptData, NotLeader, StreamlogError
from streamlog.jetstream.errors import NO_MESSAGE, ApiRefused
from streamlog.jetstream.leaders.local_leader import message_of
from streamlog.jetstream.leaders.node_rpc import (
    NodeAnswer,
    decode_answer,
    encode_answer,
    encode_error,
    subject_of,
)
from streamlog.jetstream.leaders.partition_state import LeaderPartitionState
from streamlog.model import NodeId


def test_subject() -> None:
    assert subject_of("streamlog", NodeId(3), "MSG") == "$JS.streamlog.NODE.3.MSG"


@pytest.mark.parametrize("data", [b"", b"\n", b"plain\nlines\n", bytes(range(256))])
def test_an_answer_travels_with_a_messages_bytes(data: bytes) -> None:
    answer = NodeAnswer({"sequence": 7, "subject": "a\nb"}, data)
    assert decode_answer(encode_answer(answer)) == answer


def test_errors_travel() -> None:
    with pytest.raises(ApiRefused) as refused:
        decode_answer(encode_error(ApiRefused(NO_MESSAGE)))
    assert refused.value.error == NO_MESSAGE
    with pytest.raises(NotLeader, match="node 2 leads"):
        decode_answer(encode_error(NotLeader("node 2 leads")))
    with pytest.raises(ApiRefused) as refused:
        decode_answer(encode_error(StreamlogError("busy")))
    assert refused.value.error == (503, 10008, "busy")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]\n",
        b"{\n",
        b"\xff\n",
        b'{"error":7}\n',
        b'{"error":{"code":1}}\n',
        b"null\n",
    ],
)
def test_what_is_no_answer(data: bytes) -> None:
    with pytest.raises(CorruptData):
        decode_answer(data)


def test_what_is_no_message() -> None:
    for fields in ({}, {"header_block": 7}, {"header_block": "", "colour": "red"}):
        with pytest.raises((KeyError, TypeError, ValueError)):
            message_of(NodeAnswer(fields))


def test_a_state_travels() -> None:
    state = LeaderPartitionState(1, 9, 1000, 5, None, {NodeId(2): 3})
    assert LeaderPartitionState.of_json(state.json()) == state
    with pytest.raises(KeyError):
        LeaderPartitionState.of_json({})
