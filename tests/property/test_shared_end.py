"""How far a reader has read a log, beside logs whose records can be compared one by one."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from streamlog.log.leader_epochs import EpochStart, LeaderEpochs


class Record(NamedTuple):
    epoch: int
    number: int
    """No other record has it."""


Log = list[Record]


def entries_of(log: Log) -> list[EpochStart]:
    found = LeaderEpochs()
    for offset, record in enumerate(log):
        found.assign(record.epoch, offset)
    return list(found.entries)


def shared(one: Log, other: Log) -> int:
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


@st.composite
def histories(draw: st.DrawFn) -> list[Log]:
    """Logs of replicas. Each leader goes on from a log that any one had at any time, cut anywhere."""
    logs: list[Log] = [[]]
    number = 0
    for epoch in range(draw(st.integers(1, 7))):
        kept = draw(st.sampled_from(logs))
        log = kept[: draw(st.integers(0, len(kept)))]
        for _ in range(draw(st.integers(0, 4))):
            log = [*log, Record(epoch, number)]
            number += 1
            logs.append(log)
    return logs


@given(histories(), st.data())
def test_a_reader_goes_back_to_where_the_logs_part(logs: list[Log], data: st.DataObject) -> None:
    read, led = data.draw(st.sampled_from(logs)), data.draw(st.sampled_from(logs))
    begin = data.draw(st.integers(0, len(read)))
    known = LeaderEpochs(entries_of(read)).between(begin, len(read))
    assert all(LeaderEpochs(entries_of(read)).epoch_at(it.start_offset) == it.epoch for it in known)
    found = LeaderEpochs(entries_of(led)).shared_end(known, len(read), len(led))
    if begin < len(read):
        assert max(begin, found) == max(begin, shared(read, led))
    else:
        assert found == len(read)


@given(histories(), st.data())
def test_a_log_without_its_beginning_parts_where_it_did(
    logs: list[Log], data: st.DataObject
) -> None:
    read, led = data.draw(st.sampled_from(logs)), data.draw(st.sampled_from(logs))
    start = data.draw(st.integers(0, len(led)))
    epochs = LeaderEpochs(entries_of(led))
    epochs.advance_start(start)
    found = epochs.shared_end(entries_of(read), len(read), len(led))
    if read:
        assert max(start, found) == max(start, shared(read, led))
