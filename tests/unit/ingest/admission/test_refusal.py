import pytest

from streamlog.errors import NotLeader, RecordTooLarge, StorageFull, StreamlogError, Unavailable
from streamlog.ingest.admission.refusal import INTERNAL, refusal_of


@pytest.mark.parametrize(
    ("error", "code", "err_code"),
    [
        (RecordTooLarge("x"), 400, 10054),
        (StorageFull("x"), 503, 10077),
        (NotLeader("x"), 503, 10008),
    ],
)
def test_errors_have_jetstreams_numbers(error: StreamlogError, code: int, err_code: int) -> None:
    assert refusal_of(error)[:2] == (code, err_code)


def test_anything_else_is_internal() -> None:
    assert refusal_of(ZeroDivisionError()) is INTERNAL
    assert refusal_of(Unavailable("x")) is INTERNAL
