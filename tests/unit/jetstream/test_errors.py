import pytest

from streamlog.errors import (
    InvalidStreamConfig,
    InvalidStreamName,
    InvalidSubject,
    NoController,
    NodeNotFound,
    NodeUnreachable,
    NotEnoughReplicas,
    OffsetOutOfRange,
    Overloaded,
    RequestTimedOut,
    StalePartition,
    StorageFailed,
    StreamExists,
    StreamNotFound,
)
from streamlog.jetstream.errors import BAD_REQUEST, ApiRefused, api_error


@pytest.mark.parametrize(
    ("error", "code", "err_code"),
    [
        (ApiRefused(BAD_REQUEST), 400, 10003),
        (StreamExists("x"), 400, 10058),
        (StreamNotFound("x"), 404, 10059),
        (OffsetOutOfRange(1, 2, 3), 404, 10037),
        (InvalidStreamName("x"), 500, 10052),
        (InvalidSubject("x"), 500, 10052),
        (InvalidStreamConfig("x"), 500, 10052),
        (Overloaded("x"), 429, 10167),
        (StorageFailed("x"), 503, 10077),
        (NodeUnreachable("x"), 503, 10008),
        (NoController("x"), 503, 10008),
        (RequestTimedOut("x"), 503, 10008),
        (StalePartition("x"), 503, 10008),
        (NotEnoughReplicas("x"), 503, 10077),
        (NodeNotFound("x"), 400, 10040),
        (ZeroDivisionError(), 500, 10051),
    ],
)
def test_to_jetstream(error: Exception, code: int, err_code: int) -> None:
    assert api_error(error)[:2] == (code, err_code)
