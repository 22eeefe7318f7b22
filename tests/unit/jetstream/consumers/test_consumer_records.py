"""What a partition of ``__consumer_state`` holds is read as it was written."""

import json
from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import CorruptData
from streamlog.jetstream.consumers.consumer_config import ConsumerConfig
from streamlog.jetstream.consumers.consumer_records import (
    ConsumerKey,
    KeptConsumer,
    KeptConsumers,
    consumer_record,
    epochs_record,
    given_up_record,
    state_record,
)
from streamlog.log.leader_epochs import EpochStart
from streamlog.record.offset_set import OffsetSet

KEY = ConsumerKey("orders", "worker")
CONFIG = ConsumerConfig(durable_name="worker", name="worker", ack_policy="explicit")
KEPT = KeptConsumer(CONFIG, UUID(int=7), created_ms=1_000)


def read(kept: KeptConsumers) -> None:
    """All that is decoded when it is asked for."""
    for key in kept.in_order():
        kept.consumer(key)
        kept.state_of(key)
        kept.given_up_of(key)
        kept.epochs_of(key)


def kept_of(*records: tuple[bytes, bytes | None]) -> KeptConsumers:
    kept = KeptConsumers()
    for record in records:
        kept.take(*record)
    return kept


@pytest.mark.parametrize(
    "consumer",
    [
        KEPT,
        KEPT._replace(paused_until_ms=5_000, resume_at={0: 4, 3: 0}),
        KEPT._replace(begins={0: 7, 1: 0}, carried={0: OffsetSet((2, 5))}),
        KEPT._replace(
            config=ConsumerConfig(name="c", filter_subjects=("a", "b.>"), backoff_ms=(1,))
        ),
    ],
)
def test_consumer_is_read_as_it_was_written(consumer: KeptConsumer) -> None:
    kept = kept_of(consumer_record(KEY, consumer))
    assert (kept.in_order(), kept.consumer(KEY)) == ([KEY], consumer)


@given(stream=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
       consumer=st.text(st.characters(exclude_categories=["Cs"])))  # fmt: skip
def test_key_is_of_one_consumer(stream: str, consumer: str) -> None:
    key = ConsumerKey(stream, consumer)
    assert kept_of(consumer_record(key, KEPT)).in_order() == [key]


def test_epochs_are_those_of_the_consumer() -> None:
    epochs = {0: [EpochStart(1, 0), EpochStart(3, 7)], 2: [EpochStart(2, 2)]}
    record = epochs_record(KEY, 1_000, epochs)
    assert kept_of(consumer_record(KEY, KEPT), record).epochs_of(KEY) == epochs
    later = consumer_record(KEY, KEPT._replace(created_ms=1_001))
    assert kept_of(later, record).epochs_of(KEY) == {}
    ended = epochs_record(KEY, 0, None)
    assert kept_of(consumer_record(KEY, KEPT), record, ended).epochs_of(KEY) == {}


@pytest.mark.parametrize(
    "told", [[[0, [[2, 0], [1, 5]]]], [[0, [[1, 5], [2, 5]]]], [[0, [[1]]]], 7]
)
def test_epochs_out_of_order_are_none(told: object) -> None:
    key, _ = epochs_record(KEY, 1_000, {})
    with pytest.raises(CorruptData):
        record = key, json.dumps({"created_ms": 1_000, "epochs": told}).encode()
        read(kept_of(consumer_record(KEY, KEPT), record))


def test_state_is_that_of_the_consumer() -> None:
    kept = kept_of(consumer_record(KEY, KEPT), state_record(KEY, 1_000, b"state"))
    assert kept.state_of(KEY) == b"state"


def test_state_may_come_before_its_consumer() -> None:
    kept = kept_of(state_record(KEY, 1_000, b"state"), consumer_record(KEY, KEPT))
    assert kept.state_of(KEY) == b"state"


def test_what_was_given_up_is_that_of_the_consumer() -> None:
    given_up = {0: OffsetSet((3, 4)), 2: OffsetSet((9,))}
    kept = kept_of(consumer_record(KEY, KEPT), given_up_record(KEY, 1_000, given_up))
    assert kept.given_up_of(KEY) == given_up
    kept = kept_of(given_up_record(KEY, 999, given_up), consumer_record(KEY, KEPT))
    assert kept.given_up_of(KEY) == {}, "of another one that had the name before"
    kept = kept_of(
        consumer_record(KEY, KEPT),
        given_up_record(KEY, 1_000, given_up),
        given_up_record(KEY, 1_000, None),
    )
    assert kept.given_up_of(KEY) == {}
    with pytest.raises(CorruptData):
        read(
            kept_of(
                consumer_record(KEY, KEPT),
                (given_up_record(KEY, 1_000, None)[0], b'{"created_ms": 1}'),
            )
        )


def test_last_record_of_a_key_holds() -> None:
    later = KEPT._replace(paused_until_ms=9)
    kept = kept_of(
        consumer_record(KEY, KEPT),
        state_record(KEY, 1_000, b"one"),
        consumer_record(KEY, later),
        state_record(KEY, 1_000, b"two"),
    )
    assert (kept.consumer(KEY), kept.state_of(KEY)) == (later, b"two")


@pytest.mark.parametrize("created_ms", [999, 1_001])
def test_state_of_another_consumer_of_the_name_does_not_count(created_ms: int) -> None:
    kept = kept_of(consumer_record(KEY, KEPT), state_record(KEY, created_ms, b"state"))
    assert kept.state_of(KEY) is None


def test_consumer_without_a_state_has_none() -> None:
    assert kept_of(consumer_record(KEY, KEPT)).state_of(KEY) is None


def test_consumer_made_in_the_first_millisecond_has_no_state_of_itself() -> None:
    kept = kept_of(consumer_record(KEY, KEPT._replace(created_ms=0)))
    assert kept.state_of(KEY) is None


def test_null_ends_a_consumer_and_its_state() -> None:
    kept = kept_of(
        consumer_record(KEY, KEPT),
        state_record(KEY, 1_000, b"state"),
        consumer_record(KEY, None),
        state_record(KEY, 0, None),
    )
    assert len(kept) == 0
    kept.take(*consumer_record(KEY, KEPT))
    assert kept.state_of(KEY) is None


def test_null_of_what_is_not_there_changes_nothing() -> None:
    other = ConsumerKey("orders", "other")
    kept = kept_of(
        consumer_record(KEY, KEPT), consumer_record(other, None), state_record(other, 0, None)
    )
    assert (kept.in_order(), kept.consumer(KEY)) == ([KEY], KEPT)


def test_other_keys_say_nothing() -> None:
    kept = kept_of((b"b", b"x"), (b"", b""), (b"z\0", None))
    assert len(kept) == 0


def test_state_that_is_cut_is_refused() -> None:
    key, value = state_record(KEY, 1_000, b"")
    assert value is not None
    with pytest.raises(CorruptData):
        read(kept_of(consumer_record(KEY, KEPT), (key, value[:-1])))


_key, _value = consumer_record(KEY, KEPT)
assert _value is not None
WRITTEN: bytes = _value
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda it: st.lists(it, max_size=3) | st.dictionaries(st.text(max_size=3), it, max_size=3),
    max_leaves=5,
)


@given(
    key=st.sampled_from([b"c", b"s", b"b"]).flatmap(
        lambda kind: st.binary(max_size=9).map(lambda it: kind + it)
    )
    | st.binary(max_size=9),
    value=st.none() | st.binary(max_size=30),
)
def test_any_bytes_are_taken_or_refused(key: bytes, value: bytes | None) -> None:
    with suppress(CorruptData):
        read(kept_of((key, value)))


@given(
    name=st.sampled_from(["config", "stream_id", "created_ms", "paused_until_ms", "resume_at"]),
    value=_json | st.floats(),
)
def test_any_field_is_taken_or_refused(name: str, value: object) -> None:
    fields = json.loads(WRITTEN)
    try:
        kept = kept_of((_key, json.dumps({**fields, name: value}).encode()))
        read(kept)
    except CorruptData:
        return
    assert isinstance(kept.consumer(KEY).paused_until_ms, int | None)


@given(start=st.integers(0, len(WRITTEN)), length=st.integers(0, 40), more=st.binary(max_size=5))
def test_any_damage_is_taken_or_refused(start: int, length: int, more: bytes) -> None:
    with suppress(CorruptData):
        read(kept_of((_key, WRITTEN[:start] + more + WRITTEN[start + length :])))


def test_json_without_an_end_is_refused() -> None:
    with pytest.raises(CorruptData):
        read(kept_of((_key, b"[" * 100_000)))
