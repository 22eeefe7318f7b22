"""Batches between other messages, in any reads, beside a naive twin that keeps lists."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ingest_way import Way, message

FIRST = 10
"""The partition's log end at the beginning."""

messages = st.tuples(
    st.sampled_from(["", "", "a", "b"]),  # the batch
    st.sampled_from(["next", "next", "next", "next", "1", "2", "7", "x"]),
    st.sampled_from([None, None, None, "1", "eob", "?"]),
    st.sampled_from(["", "", "i", "j"]),  # the message id
)


class Naive:
    """What is stored, and what each message is told."""

    def __init__(self) -> None:
        self.log: list[bytes] = []
        self.ids: dict[str, int] = {}
        self.batches: dict[str, list[tuple[bytes, str]]] = {}

    def plain(self, payload: bytes, message_id: str) -> dict[str, Any]:
        if message_id in self.ids:
            return {"seq": self.ids[message_id], "duplicate": True}
        return {"seq": self._store(payload, message_id)}

    def batched(
        self, batch_id: str, number: str, commit: str | None, payload: bytes, message_id: str
    ) -> Any:
        """None for an empty ack, an error's number, or the ack."""
        if not number.isdigit():
            return 10175
        if batch_id not in self.batches:
            if number != "1":
                return 10176
            self.batches[batch_id] = []
        batch = self.batches[batch_id]
        if commit == "?":
            del self.batches[batch_id]
            return 10200
        if int(number) != len(batch) + 1 or (commit == "eob" and not batch):
            del self.batches[batch_id]
            return 10176
        if commit != "eob":
            batch.append((payload, message_id))
        return None if commit is None else self._commit(batch_id)

    def next(self, batch_id: str) -> str:
        return str(len(self.batches.get(batch_id, [])) + 1)

    def _commit(self, batch_id: str) -> Any:
        batch = self.batches.pop(batch_id)
        seen = set[str]()
        for _, message_id in batch:
            if message_id in self.ids:
                return 10008  # nothing is committed before the end: it may yet be lost
            if message_id in seen:
                return 10201
            if message_id:
                seen.add(message_id)
        last = [self._store(*each) for each in batch][-1]
        return {"seq": last, "batch": batch_id, "count": len(batch)}

    def _store(self, payload: bytes, message_id: str) -> int:
        self.log.append(payload)
        sequence = FIRST + len(self.log)
        if message_id:
            self.ids[message_id] = sequence
        return sequence


async def play(reads: list[list[Any]]) -> None:
    way, naive = Way(batches=True, in_flight_bytes_max=1 << 20), Naive()
    expected: dict[str, Any] = {}
    for number, read in enumerate(reads):
        frames = []
        for position, (batch_id, wanted, commit, message_id) in enumerate(read):
            reply, payload = f"r{number}.{position}", b"%d.%d" % (number, position)
            asked = {"Nats_Msg_Id": message_id} if message_id else {}
            if batch_id:
                sequence = naive.next(batch_id) if wanted == "next" else wanted
                asked |= {"Nats_Batch_Id": batch_id, "Nats_Batch_Sequence": sequence}
                if commit is not None:
                    asked["Nats_Batch_Commit"] = commit
                expected[reply] = naive.batched(batch_id, sequence, commit, payload, message_id)
            else:
                expected[reply] = naive.plain(payload, message_id)
            frames.append(message(reply, payload, **asked))
        if frames:
            way.read(*frames)
    way.partition.commit()
    told = dict(way.told())
    for answer in told.values():
        if answer is not None:
            assert answer.pop("stream") == "orders"
    assert {
        reply: answer["error"]["err_code"] if answer and "error" in answer else answer
        for reply, answer in told.items()
    } == expected
    assert way.partition.values() == naive.log
    assert way.staging.count == len(naive.batches)
    way.ingest.close()
    assert (way.staging.count, way.staging.taken_bytes, way.room.taken_bytes) == (0, 0, 0)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(messages, max_size=8), max_size=6))
def test_like_the_naive_twin(reads: list[list[Any]]) -> None:
    asyncio.run(play(reads))
