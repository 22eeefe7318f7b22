"""Attempts of one task that die, come back, change the order of rows, and run at the same time."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_streamlog.options.write_options import SinkOptions
from streamlog.arrow.sink.rows import Rows
from streamlog.arrow.sink.task_attempt import TaskAttempt
from streamlog.arrow.sink.task_writer import TaskWriter
from streamlog.errors import InvalidProducerEpoch
from streamlog.model import TopicPartition
from tests.spark.scripted_leaders import Killed, ScriptedLeaders

Made = tuple[bytes | None, bytes | None]
"""Key and value."""

ATTEMPTS_MAX = 8


def options(**given: Any) -> SinkOptions:
    texts = {name: str(value) for name, value in given.items()}
    return SinkOptions.parse({"servers": "a:1", "topic": "orders", **texts}, streaming=False)


def write(
    leaders: ScriptedLeaders, made: list[Made], *, times: list[int] | None = None, **given: Any
) -> int:
    """One attempt, always of the same task."""
    columns: dict[str, pa.Array] = {
        "key": pa.array([key for key, _ in made], pa.binary()),
        "value": pa.array([value for _, value in made], pa.binary()),
    }
    if times is not None:
        micros = [it * 1_000 for it in times]
        columns["timestamp"] = pa.array(micros, pa.timestamp("us", tz="UTC"))
    batch = pa.RecordBatch.from_pydict(columns)
    rows = Rows(columns, "orders")
    writer = TaskWriter(leaders, TaskAttempt.of_batch("w", 0), rows, options(**given))
    return writer.write(batch.slice(at, 3) for at in range(0, len(made), 3))


def numbered(count: int) -> list[Made]:
    return [(None, b"%d" % i) for i in range(count)]


class Fate:
    """Comes in between at each batch, as hypothesis wills."""

    def __init__(self, leaders: ScriptedLeaders, made: list[Made], data: st.DataObject) -> None:
        self._leaders = leaders
        self._made = made
        self._data = data
        self._attempts = 0
        self.succeeded = False
        leaders.before = self._before
        leaders.after = self._after

    def attempt(self) -> None:
        """One that may find its end, and in which others may begin and end."""
        if self._attempts == ATTEMPTS_MAX:
            return
        self._attempts += 1
        made = self._data.draw(st.permutations(self._made))
        try:
            assert write(self._leaders, made, batchBytes=50) == len(made)
        except (Killed, InvalidProducerEpoch):
            return
        self.succeeded = True

    def _before(self, tp: TopicPartition) -> None:
        match self._data.draw(st.sampled_from(["go", "go", "go", "die", "other"])):
            case "die":
                raise Killed
            case "other":
                self.attempt()

    def _after(self, tp: TopicPartition) -> None:
        match self._data.draw(st.sampled_from(["go", "go", "go", "die", "other"])):
            case "die":
                raise Killed
            case "other":
                self.attempt()


keys = st.sampled_from([None, b"a", b"b", b"c"])
values = st.sampled_from([None, b"", b"1", b"2", b"3", b"4", b"5" * 30])


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(keys, values), max_size=14), st.integers(1, 3), st.data())
def test_no_row_comes_twice_and_none_is_missing(
    made: list[Made], partitions: int, data: st.DataObject
) -> None:
    leaders = ScriptedLeaders(partitions=partitions)
    fate = Fate(leaders, made, data)
    fate.attempt()
    rows = Counter(value for _, value in made)
    assert leaders.values() <= rows
    if not fate.succeeded:
        leaders.before = leaders.after = lambda tp: None
        write(leaders, data.draw(st.permutations(made)), batchBytes=50)
    assert leaders.values() == rows


def test_a_batch_whose_answer_was_lost_is_there_once() -> None:
    leaders = ScriptedLeaders()

    def resend(tp: TopicPartition) -> None:
        leaders.after = lambda tp: None
        raise Killed

    leaders.after = resend
    with pytest.raises(Killed):
        write(leaders, numbered(5))
    assert write(leaders, numbered(5)) == 5
    assert [it.value for it in leaders.records()] == [b"%d" % i for i in range(5)]


def test_the_rest_follows_in_its_order() -> None:
    """The first attempt dies after some batches; what it wrote stays where it is."""
    leaders, seen = ScriptedLeaders(), []

    def third(tp: TopicPartition) -> None:
        seen.append(tp)
        if len(seen) == 3:
            leaders.before = lambda tp: None
            raise Killed

    leaders.before = third
    with pytest.raises(Killed):
        write(leaders, numbered(9), batchBytes=50)
    written = len(leaders.records())
    assert 0 < written < 9
    assert write(leaders, numbered(9), batchBytes=50) == 9
    assert [it.value for it in leaders.records()] == [b"%d" % i for i in range(9)]


@pytest.mark.parametrize("append_time_ms", [None, 99])
def test_times_tell_rows_apart_unless_the_log_gives_its_own(append_time_ms: int | None) -> None:
    leaders = ScriptedLeaders()
    leaders.append_time_ms = append_time_ms
    write(leaders, [(None, b"x")] * 2, times=[1, 2])
    write(leaders, [(None, b"x")] * 3, times=[3, 2, 1])
    times = [it.timestamp_ms for it in leaders.records()]
    assert times == ([1, 2, 3] if append_time_ms is None else [99, 99, 99])


def test_other_tasks_and_other_writes_are_left_alone() -> None:
    """Equal rows of theirs are no repetitions."""
    ids = {
        TaskAttempt.of_batch(name, task).producer_id for name in ("w", "w1") for task in (0, 1, 11)
    } | {
        TaskAttempt.of_stream(name, epoch, task).producer_id
        for name in ("w", "w1")
        for epoch in (0, 1)
        for task in (0, 1)
    }
    assert len(ids) == 6 + 8
    assert all(2**62 <= it < 2**63 for it in ids)
    assert TaskAttempt.of_stream("q", 3, 4) == TaskAttempt.of_stream("q", 3, 4)


def test_what_only_the_first_attempt_had_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """It cannot be taken back; the query gives other rows at each attempt."""
    leaders = ScriptedLeaders()
    write(leaders, [(None, b"1"), (None, b"2")])
    write(leaders, [(None, b"2"), (None, b"3")])
    assert [it.value for it in leaders.records()] == [b"1", b"2", b"3"]
    (told,) = [it for it in caplog.records if "does not have" in it.message]
    assert vars(told)["records"] == 1


def test_two_that_chose_the_same_epoch_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """One batch of each, of equal numbers: the leader takes the second for a repetition."""
    from streamlog.arrow.sink import partition_writer

    monkeypatch.setattr(partition_writer, "epoch_after", lambda epoch: epoch + 1)
    leaders, made = ScriptedLeaders(), numbered(4)
    write(leaders, made[:1])

    def other(tp: TopicPartition) -> None:
        leaders.before = second
        write(leaders, [made[0], made[3], made[2], made[1]])

    def second(tp: TopicPartition) -> None:
        """The first batch of each is refused; its second one is that of the takeover."""
        leaders.before = lambda tp: None

    calls: list[TopicPartition] = []

    def first(tp: TopicPartition) -> None:
        calls.append(tp)
        if len(calls) == 2:
            other(tp)

    leaders.before = first
    with pytest.raises(InvalidProducerEpoch, match="at the same time"):
        write(leaders, made)
    assert leaders.values() == Counter(value for _, value in made)
