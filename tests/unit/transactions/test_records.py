import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import CorruptBatch
from streamlog.transactions.records import read_key, read_transaction, transaction_record
from streamlog.transactions.transaction import Transaction, TransactionState

INT64 = st.integers(-1, 2**63 - 1)
EPOCHS = st.integers(-1, 2**15 - 1)
TRANSACTIONS = st.builds(
    Transaction,
    INT64,
    EPOCHS,
    st.integers(1, 2**31 - 1),
    st.sampled_from([it for it in TransactionState if it is not TransactionState.EMPTY]),
    st.frozensets(st.tuples(st.text(min_size=1, max_size=9), st.integers(0, 99)), max_size=9),
    INT64,
    INT64,
    EPOCHS,
    INT64,
    INT64,
    st.integers(0, 3),
)


@given(TRANSACTIONS)
def test_a_record_says_what_was_written(value: Transaction) -> None:
    record = transaction_record("transfers", value)
    assert read_key(record.key) == "transfers"
    assert record.value is not None
    assert read_transaction(record.value) == value


def test_as_kafka_writes_it() -> None:
    """Version 1 of TransactionLogValue, as Kafka 4.0 writes it, with its three tagged fields."""
    written = bytes.fromhex(
        "0001"  # version
        "0000000000000007" "0005" "0000ea60" "02"  # producer, epoch, time-out, PrepareCommit
        "02" "0274" "03" "00000000" "00000003" "00"  # t: 0 and 3
        "0000018bcfe56801" "0000018bcfe56800"  # last update, start
        "03" "0008" "0000000000000006" "0108" "0000000000000008" "0202" "0002"
    )  # fmt: skip
    expected = Transaction(
        7, 5, 60_000, TransactionState.PREPARE_COMMIT, frozenset({("t", 0), ("t", 3)}),
        1_700_000_000_001, 1_700_000_000_000, previous_id=6, next_id=8, version=2,
    )  # fmt: skip
    assert read_transaction(written) == expected
    assert transaction_record("x", expected).value == written
    assert transaction_record("x", None) == (b"\x00\x00\x00\x01x", None)


def test_version_0_is_read() -> None:
    written = bytes.fromhex(
        "0000" "0000000000000007" "0005" "0000ea60" "01"
        "00000001" "000174" "00000001" "00000003"
        "0000018bcfe56801" "0000018bcfe56800"
    )  # fmt: skip
    assert read_transaction(written) == Transaction(
        7, 5, 60_000, TransactionState.ONGOING, frozenset({("t", 3)}),
        1_700_000_000_001, 1_700_000_000_000,
    )  # fmt: skip


def test_no_transaction_was_begun() -> None:
    empty = Transaction(7, 0, 1, TransactionState.EMPTY, frozenset(), 5)
    value = transaction_record("x", empty).value
    assert value is not None
    assert value[17] == 0  # null
    assert read_transaction(value) == empty


@pytest.mark.parametrize(
    "data", ["", "0001", "0002" + "00" * 40, "0001" + "00" * 14 + "09" + "00" * 30]
)
def test_what_does_not_decode_is_corrupt(data: str) -> None:
    with pytest.raises(CorruptBatch):
        read_transaction(bytes.fromhex(data))


def test_other_keys_are_none_of_ours() -> None:
    assert read_key(b"\x00\x07\x00\x01x") is None
    with pytest.raises(CorruptBatch):
        read_key(b"\x00")
