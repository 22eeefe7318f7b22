import pytest

from streamlog import errors
from streamlog.errors import (
    InvalidRequest,
    MalformedFrame,
    OffsetOutOfRange,
    StreamExists,
    StreamlogError,
)
from streamlog.metadata.commands import (
    Granted,
    decode_result,
    encode_granted,
    encode_refused,
)


def test_what_was_granted_comes_back() -> None:
    granted = Granted(7, {"created": True, "list": [1, None]})
    assert decode_result(encode_granted(granted)) == granted


@pytest.mark.parametrize("kind", [StreamExists, errors.NoController, errors.CorruptBatch])
def test_an_error_keeps_its_class_and_its_text(kind: type[StreamlogError]) -> None:
    with pytest.raises(kind, match=r"^why$") as caught:
        decode_result(encode_refused(kind("why")))
    assert type(caught.value) is kind


def test_an_error_that_is_more_than_a_text_keeps_its_text() -> None:
    with pytest.raises(InvalidRequest, match=r"offset 9 is outside \[1, 5\]"):
        decode_result(encode_refused(OffsetOutOfRange(9, 1, 5)))


def test_an_error_of_a_later_streamlog_is_still_one() -> None:
    with pytest.raises(StreamlogError, match="why"):
        decode_result(b'{"error": "Unheard", "message": "why"}')


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"offset": "x"}', b'{"error": 1}', b"\xff"])
def test_anything_else_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedFrame):
        decode_result(data)
