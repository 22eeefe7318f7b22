import inspect

import pytest

from streamlog import errors
from streamlog.errors import InvalidRequest, NotLeader, StreamlogError, Unavailable
from streamlog.wire import errors as errors_wire
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.errors import check, code_of, error_of

TREE = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, StreamlogError)
]
ARGUMENTS: dict[type[StreamlogError], tuple[object, ...]] = {
    errors.OffsetOutOfRange: (9, 0, 5),
    errors.OffsetMovedToTieredStorage: (9, 0, 5),
    errors.ConfigError: ("key", "problem", "remedy"),
    errors.ProducerRefused: ("text", 5),
    errors.OutOfOrderSequence: ("text", 5),
    errors.UnknownProducer: ("text", 5),
    errors.InvalidProducerEpoch: ("text", 5),
    errors.RecordsWithoutKey: (2, [0, 4]),
}


@pytest.mark.parametrize("kind", TREE)
def test_every_error_has_a_code_and_clients_retry_what_may_be_retried(
    kind: type[StreamlogError],
) -> None:
    code = code_of(kind(*ARGUMENTS.get(kind, ("text",))))
    assert code is not ErrorCode.none
    assert errors_wire.code_named(kind.__name__) is code
    assert not kind.retriable or code.retriable


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.OffsetOutOfRange, 1),
        (errors.OffsetMovedToTieredStorage, 109),
        (errors.CorruptBatch, 2),
        (errors.StreamNotFound, 3),
        (errors.PartitionNotFound, 3),
        (errors.NotLeader, 6),
        (errors.InvalidStreamName, 17),
        (errors.StreamExists, 36),
        (errors.InvalidStreamConfig, 40),
        (errors.StorageFailed, 56),
        (errors.FencedLeaderEpoch, 74),
        (errors.UnknownLeaderEpoch, 75),
    ],
)
def test_the_codes_are_kafkas(kind: type[StreamlogError], code: int) -> None:
    assert code_of(kind(*ARGUMENTS.get(kind, ("text",)))) == code


@pytest.mark.parametrize("code", [code for code in ErrorCode if code])
def test_every_code_becomes_an_error_that_names_it(code: ErrorCode) -> None:
    error = error_of(code, "flights-0")
    assert str(code.value) in str(error)
    assert "flights-0" in str(error)


def test_codes_that_we_do_not_use_keep_whether_they_may_be_retried() -> None:
    assert isinstance(error_of(ErrorCode.leader_not_available, "x"), NotLeader)
    assert isinstance(error_of(ErrorCode.coordinator_load_in_progress, "x"), Unavailable)
    assert not error_of(ErrorCode.group_id_not_found, "x").retriable
    assert isinstance(error_of(ErrorCode.offset_out_of_range, "x"), InvalidRequest)
    assert not error_of(12_345, "x").retriable


@pytest.mark.parametrize("kind", TREE)
def test_every_error_is_known_by_its_name_or_as_the_callers_fault(
    kind: type[StreamlogError],
) -> None:
    error = errors_wire.error_named(kind.__name__, "why")
    assert str(error) == "why"
    if kind in ARGUMENTS:
        assert isinstance(error, InvalidRequest) == issubclass(kind, InvalidRequest)
    else:
        assert type(error) is kind


@pytest.mark.parametrize("name", ["ValueError", "StreamlogErrors", "", "__name__"])
def test_a_name_of_no_error_of_ours_is_a_plain_one(name: str) -> None:
    assert type(errors_wire.error_named(name, "why")) is StreamlogError


def test_no_error_raises_nothing() -> None:
    check(0, "x")
    with pytest.raises(NotLeader, match="x: not leader or follower"):
        check(6, "x")
