"""Increments of many counters, alone and in batches, in reads of which some fail, against a naive sum."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.errors import NotLeader, StorageFull
from streamlog.ingest.admission.counters import CounterState, body_of, sourced, total_of
from tests.ingest_way import Way, message

START = 10


class Increment(NamedTuple):
    """``text``: of its header; ``in_batch``: it belongs to the batch of its neighbours."""

    subject: str
    text: str
    in_batch: bool = False
    payload: bytes = b""

    @property
    def is_good(self) -> bool:
        return self.text.lstrip("+-").isdigit() and not self.payload


numbers = st.integers(-(10**30), 10**30).map(str) | st.sampled_from(["+3", "0", "-0", "x", "", "1"])
increments = st.builds(
    Increment,
    st.sampled_from(["a", "b", "c.1"]),
    numbers,
    st.booleans(),
    st.sampled_from([b"", b"", b"", b"x"]),
)


class Read(NamedTuple):
    messages: Sequence[Increment]
    fails: bool
    commits: bool


reads = st.builds(
    Read, st.lists(increments, max_size=8), st.sampled_from([False, False, True]), st.booleans()
)


class World(Way):
    def __init__(self) -> None:
        super().__init__(
            in_flight_bytes_max=1 << 20, message_bytes_max=1000, counters=True, batches=True
        )
        self.batches = 0

    def frames(self, group: Sequence[Increment], first: int) -> list[bytes]:
        """Of one message, or of a batch of several."""
        if not group[0].in_batch:
            (it,) = group
            return [message(f"r{first}", it.payload, subject=it.subject, Nats_Incr=it.text)]
        self.batches += 1
        return [
            message(
                f"r{first + number}", it.payload, subject=it.subject, Nats_Incr=it.text,
                Nats_Batch_Id=f"b{self.batches}", Nats_Batch_Sequence=str(number + 1),
                **({"Nats_Batch_Commit": "1"} if number == len(group) - 1 else {}),
            )
            for number, it in enumerate(group)
        ]  # fmt: skip


def groups_of(messages: Sequence[Increment]) -> list[list[Increment]]:
    groups: list[list[Increment]] = []
    for it in messages:
        if it.in_batch and groups and groups[-1][0].in_batch:
            groups[-1].append(it)
        else:
            groups.append([it])
    return groups


async def tell(story: Sequence[Read]) -> None:
    world, totals = World(), Counter[str]()
    stored: list[bytes] = []
    wanted: dict[str, Any] = {}
    told: dict[str, Any] = {}
    for read in story:
        sums, bodies, frames = Counter(totals), list[bytes](), list[bytes]()
        values: dict[str, Any] = {}
        for group in groups_of(read.messages):
            first = len(wanted) + len(values)
            frames += world.frames(group, first)
            names = [f"r{first + number}" for number in range(len(group))]
            for name in names[:-1]:
                values[name] = None  # a batch goes on
            if not all(it.is_good for it in group):
                values[names[-1]] = "refused"
                continue
            for it in group:
                sums[it.subject] += int(it.text)
                bodies.append(b'{"val":"%d"}' % sums[it.subject])
            offset = START + len(stored) + len(bodies)
            values[names[-1]] = (
                {
                    "stream": "orders",
                    "seq": offset,
                    "batch": f"b{world.batches}",
                    "count": len(group),
                }
                if group[0].in_batch
                else {"stream": "orders", "seq": offset, "val": str(sums[group[0].subject])}
            )
        if read.fails:
            values = {name: it and "refused" for name, it in values.items()}
        else:
            totals, stored = sums, stored + bodies
        wanted |= values
        world.partition.fault = StorageFull("no room") if read.fails else None
        world.read(*frames)
        if read.commits:
            world.partition.commit()
        told |= dict(world.told())
    world.partition.commit()
    await asyncio.sleep(0)
    told |= dict(world.told())
    assert {name: "refused" if it and "error" in it else it for name, it in told.items()} == wanted
    assert world.partition.values() == stored
    assert world.room.taken_bytes == 0


@settings(max_examples=400, deadline=None)
@given(st.lists(reads, max_size=6))
def test_each_value_is_the_sum_of_all_before_it(story: list[Read]) -> None:
    """Those before it in the same read, too, and none that was not stored."""
    asyncio.run(tell(story))


@settings(max_examples=200, deadline=None)
@given(st.integers(-(10**40), 10**40))
def test_what_is_stored_is_read_again(total: int) -> None:
    assert total_of(body_of(total)) == total
    assert json.loads(body_of(total)) == {"val": str(total)}


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=30) | st.text(max_size=30).map(str.encode) | st.recursive(
    st.none() | st.integers() | st.text(), lambda it: st.dictionaries(st.sampled_from(["val", "x"]), it)
).map(lambda it: json.dumps(it).encode()))  # fmt: skip
def test_any_body_is_a_total_or_none(body: bytes) -> None:
    total = total_of(body)
    assert total is None or int(json.loads(body)["val"]) == total


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=1, max_size=6), st.integers(0, 5))
def test_the_next_leader_reads_what_the_log_has(steps: list[int], lost: int) -> None:
    """What the former leader had appended beyond, and lost, counts nowhere."""

    async def story() -> None:
        world = World()
        for step in steps:
            world.read(message("r", b"", Nats_Incr=str(step)))
        kept = world.partition.batches[: max(0, len(steps) - lost)]
        wanted = sum(steps[: len(kept)]) + 1000
        world.partition.fail(NotLeader("gone"))
        later = World()
        later.partition.batches = kept
        later.partition.log_end_offset = START + len(kept)
        later.read(message("r", b"", Nats_Incr="1000"))
        later.partition.commit()
        ((_, answer),) = later.told()
        assert int(answer["val"]) == wanted

    asyncio.run(story())


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "A", "B", "A:x"]),
            st.sampled_from(["a", "b.c"]),
            st.integers(-(10**40), 10**40),
        ),
        max_size=20,
    )
)
def test_sourced_counter_is_the_sum_of_its_own_and_of_the_last_of_each_origin(
    steps: list[tuple[str, str, int]],
) -> None:
    """Without an origin: an increment of its own."""
    state, own, last = CounterState(), 0, dict[tuple[str, str], int]()
    for origin, subject, value in steps:
        if origin:
            made = sourced(state, origin, subject, value)
            assert made is not None
            assert made.state.total == state.total + made.increment
            state, last[origin, subject] = made.state, value
        else:
            state, own = state._replace(total=state.total + value), own + value
        assert state.total == own + sum(last.values())
    told = json.loads(state.sources or b"{}")
    assert {(it, subject): int(value) for it in told for subject, value in told[it].items()} == last


def test_what_was_sourced_and_cannot_be_read_is_told() -> None:
    for header in (b"x", b"[]", b'{"A":1}', b'{"A":{"a":1}}', b'{"A":{"a":"x"}}'):
        assert sourced(CounterState(0, header), "A", "a", 1) is None
