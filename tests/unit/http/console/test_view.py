"""Pages of lists: small, whatever there is in the cluster."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from streamlog.errors import InvalidRequest
from streamlog.http.console.cluster_snapshot import (
    ClusterSnapshot,
    CoordinatedTransaction,
    LocalReplicaState,
)
from streamlog.http.console.event_log import EventLog
from streamlog.http.console.query import ROWS_MAX, Query
from streamlog.http.console.traffic import Traffic
from streamlog.http.console.view import SUMMED_MAX, ShownRow, View
from streamlog.model import NodeId, TopicPartition
from streamlog.partition.state import PartitionStatistics
from streamlog.transactions.transaction import Transaction, TransactionState
from tests.page_world import BEGAN_MS, LocalPartitions, Progress, image, moment, partition, stream
from tests.partition_statistics import partition_statistics

S0, S1, T0 = TopicPartition("s", 0), TopicPartition("s", 1), TopicPartition("t", 0)


def view(local: LocalPartitions | None = None) -> View:
    return View(local or LocalPartitions(), Traffic(), EventLog())


def test_streams_in_order_with_what_they_want() -> None:
    it = moment(image(stream("t", partition()), stream("s", partition(leader=-1), partition())))
    found = view().list(it, Query())
    assert [row["name"] for row in found.rows] == ["s", "t"]
    assert (found.rows[0]["leaderless"], found.rows[0]["partitions"]) == (1, 2)
    assert (found.rows[0]["records"], found.rows[0]["size_bytes"]) == (20, 2000)
    assert [row["name"] for row in view().list(it, Query(only="leaderless")).rows] == ["s"]
    assert view().list(it, Query(filter="x")).total == 0


def test_partitions_by_stream_by_state_and_by_leader() -> None:
    streams = stream("s", partition(), partition(leader=2, isr=(2,))), stream("t", partition())
    it, shown = moment(image(*streams)), view(LocalPartitions([S1]))

    def listed(**query: Any) -> list[str]:
        rows = shown.list(it, Query(show="partitions", **query)).rows
        return [f"{row['stream']}/{row['partition']}" for row in rows]

    assert listed() == ["s/0", "s/1", "t/0"]
    assert listed(stream="s") == ["s/0", "s/1"]
    assert listed(only="under_min_isr") == listed(only="under_replicated") == ["s/1"]
    assert listed(only="led_here") == ["s/0", "t/0"]
    here, away, _ = shown.list(it, Query(show="partitions")).rows
    assert (here["high_watermark"], here["lag"], here["kept_here"]) == (10, 2, True)
    assert (away["high_watermark"], away["kept_here"], away["wants"]) == (
        None, False, ["under_min_isr", "under_replicated"],
    )  # fmt: skip


def test_a_leader_tells_what_is_yet_to_go_to_the_store() -> None:
    class Tiered(LocalPartitions):
        def statistics(self, tp: TopicPartition) -> PartitionStatistics | None:
            return partition_statistics(tp, tier_lag_bytes=4096, is_leader=tp.partition == 0)

    tiered = stream("s", partition(), partition(leader=2), tiered=True)
    it = moment(image(tiered, stream("t", partition())))
    led, followed, other = view(Tiered()).list(it, Query(show="partitions")).rows
    assert led["tier_lag_bytes"] == 4096
    assert "tier_lag_bytes" not in followed
    assert "tier_lag_bytes" not in other


def test_a_page_of_ten_thousand_partitions_is_small() -> None:
    local = LocalPartitions()
    shown, it = view(local), moment(image(stream("s", *[partition()] * 10_000)))
    query = Query(show="partitions", page=3, size=ROWS_MAX, filter="s")
    found = shown.list(it, query)
    assert (found.total, found.rows[0]["partition"], len(found.rows)) == (10_000, 600, ROWS_MAX)
    assert local.asked == ROWS_MAX, "none but those shown are looked at"
    assert len(json.dumps(found.rows)) < 100_000


class Walked(tuple[Any, ...]):
    """Counts how often somebody goes through all of it."""

    walks = 0

    def __iter__(self) -> Iterator[Any]:
        self.walks += 1
        return super().__iter__()


def test_an_image_that_has_not_changed_is_not_walked_again() -> None:
    partitions = Walked([partition()] * 10_000)
    whole = replace(stream("s", *partitions), partitions=partitions)
    shown, it = view(), moment(image(whole))
    query = Query(show="partitions", page=3, size=ROWS_MAX, filter="s")
    first = shown.list(it, query).rows
    walks = partitions.walks
    assert walks > 0
    for _ in range(10):
        assert shown.list(it, query).rows == first
        shown.summary(it)
    assert partitions.walks == walks


def test_a_row_that_has_not_changed_is_not_made_again() -> None:
    streams = [stream(f"s{number}", partition()) for number in range(3)]
    shown, it = view(), moment(image(*streams))
    before = shown.list(it, Query()).shown
    shown.moved({"s1", "elsewhere"})
    after = shown.list(it, Query()).shown
    assert [a is b for a, b in zip(before, after, strict=True)] == [True, False, True]
    partitions = Query(show="partitions")
    pairs = zip(shown.list(it, partitions).shown, shown.list(it, partitions).shown, strict=True)
    assert all(a is b for a, b in pairs)


def sorted_names(shown: View, it: ClusterSnapshot, **query: Any) -> list[str]:
    return [row["name"] for row in shown.list(it, Query(**query)).rows]


def test_streams_are_sorted_on_the_node_and_follow_what_moves() -> None:
    traffic = Traffic()
    shown = View(LocalPartitions(), traffic, EventLog())
    held = {TopicPartition(f"s{n}", 0): LocalReplicaState(0, n, 100 - n) for n in range(5)}
    it = moment(image(*(stream(f"s{n}", partition()) for n in range(5))))
    traffic.begin(0, dict(held))
    assert sorted_names(shown, it, sort="records") == ["s0", "s1", "s2", "s3", "s4"]
    most = {"sort": "records", "descending": True}
    assert sorted_names(shown, it, **most, size=2) == ["s4", "s3"]
    assert sorted_names(shown, it, **most, size=2, page=2) == ["s0"]
    assert sorted_names(shown, it, sort="size_bytes") == ["s4", "s3", "s2", "s1", "s0"]
    assert sorted_names(shown, it, sort="name", descending=True) == ["s4", "s3", "s2", "s1", "s0"]
    assert sorted_names(shown, it, sort="name", descending=True, size=2, page=2) == ["s0"]
    moves = [(TopicPartition("s1", 0), LocalReplicaState(0, 50, 200))]
    shown.moved(traffic.look(1_000, moves))
    assert sorted_names(shown, it, **most, size=1) == ["s1"]
    assert sorted_names(shown, it, sort="rate", descending=True, size=1) == ["s1"]
    gone = moment(
        replace(it.image, streams=it.image.streams.delete("s1"), offset=8, parent_offset=7,
                touched=frozenset({"s1"}))
    )  # fmt: skip
    assert sorted_names(shown, gone, **most) == ["s4", "s3", "s2", "s0"]
    assert sorted_names(shown, gone, **most, filter="3") == ["s3"]


def test_groups_by_lag() -> None:
    groups = [Progress("a", {S0: 9}), Progress("b", {S0: 1}), Progress("c", {S0: 5}, "Empty", 4)]
    it = moment(image(stream("s", partition(), partition())), groups=groups)
    query = Query(show="groups", sort="lag", descending=True)
    assert [row["group"] for row in view().list(it, query).rows] == ["b", "c", "a"]
    by_members = Query(show="groups", sort="members", descending=True, size=1)
    assert [row["group"] for row in view().list(it, by_members).rows] == ["c"]


def test_groups_with_what_they_have_to_read() -> None:
    groups = [Progress("b", {S0: 4, S1: 1, T0: 10}), Progress("a", {S1: 3}, "Empty", 0, NodeId(3))]
    it = moment(
        image(stream("s", partition(), partition()), stream("t", partition())), groups=groups
    )
    a, b = view(LocalPartitions([T0])).list(it, Query(show="groups")).rows
    assert (a["group"], a["lag"], a["coordinator"], a["state"]) == ("a", 7, 3, "Empty")
    assert (b["lag"], b["lag_unknown"], b["partitions"]) == (15, 1, 3)
    assert b["furthest"][0] == {"stream": "s", "partition": 1, "offset": 1, "lag": 9}


def test_the_summary_says_who_is_who() -> None:
    it = moment(image(node_2={"fenced": True}, node_3={"draining": True, "full": True}))
    summary = view().summary(it)
    one, two, three = summary["nodes"]
    assert (one["this"], one["controller"], one["states"]) == (True, False, ["alive"])
    assert (two["controller"], two["alive"], two["states"]) == (True, False, ["gone"])
    assert three["states"] == ["full", "draining"]
    assert summary["cluster"]["node"] == 1
    assert summary["findings_total"] == len(summary["findings"]) > 0
    json.dumps(summary)


@pytest.mark.parametrize(
    "given",
    [
        {"show": "secrets"},
        {"only": "all"},
        {"page": "-1"},
        {"page": "1e3"},
        {"page": "9" * 30},
        {"page": "²"},
        {"size": "0"},
        {"size": str(ROWS_MAX + 1)},
        {"filter": "x" * 257},
        {"sort": "secrets"},
        {"order": "up"},
    ],
)
def test_a_wrong_question_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match=next(iter(given))):
        Query.of(given)


def test_what_is_asked_for() -> None:
    given = {"show": "partitions", "filter": "a", "only": "led_here", "page": "2", "size": "7"}
    assert Query.of(given) == Query("partitions", "a", "", "led_here", 2, 7)
    assert Query.of({}, show="events").show == "events"
    assert Query.of({"sort": "name", "order": "asc"}) == Query()
    assert Query.of({"order": "desc"}) == Query(sort="name", descending=True)
    assert Query.of({"sort": "lag"}, show="groups") == Query("groups", sort="lag")
    assert Query.of({"sort": "started"}, show="transactions") == Query("transactions")


class Waiting(LocalPartitions):
    """Readers of committed records wait in some of the partitions."""

    def __init__(self, elsewhere: Iterable[TopicPartition] = (), **undecided: int) -> None:
        """``s0=3``: records of partition 0 of stream s."""
        super().__init__(elsewhere)
        self.undecided = undecided

    def statistics(self, tp: TopicPartition) -> PartitionStatistics | None:
        if tp in self.elsewhere:
            return None
        return partition_statistics(
            tp, undecided=self.undecided.get(f"{tp.stream}{tp.partition}", 0)
        )


def transaction(
    name: str,
    *partitions: TopicPartition,
    open_ms: int | None = None,
    timeout_ms: int = 60_000,
    state: TransactionState = TransactionState.ONGOING,
) -> CoordinatedTransaction:
    """``open_ms``: for how long; None: it is not."""
    if open_ms is None:
        state = TransactionState.COMPLETE_COMMIT
    places = frozenset((it.stream, it.partition) for it in partitions)
    began_ms = -1 if open_ms is None else NOW_MS - open_ms
    kept = Transaction(7, 3, timeout_ms, state, places, NOW_MS, began_ms)
    return CoordinatedTransaction(name, kept, NodeId(2))


NOW_MS = BEGAN_MS + 3_600_000


def test_transactions_with_what_they_hold_up() -> None:
    found = [
        transaction("b", S0, S1, T0, open_ms=90_500),
        transaction("c", S1, open_ms=61_000, state=TransactionState.PREPARE_COMMIT),
        transaction("a"),
    ]
    streams = stream("s", partition(), partition()), stream("t", partition())
    it = moment(image(*streams), transactions=found, now_ms=NOW_MS)
    shown = view(Waiting([T0], s0=5, s1=40))
    b, c, a = shown.list(it, Query(show="transactions")).rows
    assert b == {
        "transactional_id": "b",
        "state": "Ongoing",
        "open_s": 90,
        "timeout_s": 60,
        "overdue": True,
        "producer_id": 7,
        "producer_epoch": 3,
        "coordinator": 2,
        "partitions": 3,
        "held_up": 45,
        "held_up_unknown": 1,
        "furthest": [
            {"stream": "s", "partition": 1, "held_up": 40},
            {"stream": "s", "partition": 0, "held_up": 5},
        ],
    }
    assert (c["state"], c["overdue"], c["held_up"]) == ("PrepareCommit", False, 40)
    assert (a["open_s"], a["overdue"], a["partitions"], a["furthest"]) == (None, False, 0, [])


def test_transactions_are_filtered_sorted_and_paged() -> None:
    found = [
        transaction("b1", S0, S1, open_ms=9),
        transaction("c", S1, open_ms=5),
        transaction("b0"),
    ]
    it = moment(image(stream("s", partition(), partition())), transactions=found, now_ms=NOW_MS)
    shown = view()

    def listed(**query: Any) -> list[str]:
        asked = Query(show="transactions", **query)
        return [row["transactional_id"] for row in shown.list(it, asked).rows]

    assert listed() == ["b1", "c", "b0"]
    assert listed(sort="started", descending=True) == ["b0", "c", "b1"]
    assert listed(sort="name") == ["b0", "b1", "c"]
    assert listed(sort="partitions", descending=True) == ["b1", "c", "b0"]
    assert listed(filter="b", size=1, page=1) == ["b0"]
    assert shown.list(it, Query(show="transactions", filter="b")).total == 2


def test_transaction_that_has_not_changed_is_not_told_again() -> None:
    it = moment(image(stream("s", partition(), partition())), now_ms=NOW_MS)
    local = Waiting(s0=5)
    shown, query = view(local), Query(show="transactions")

    def rows(open_ms: int) -> Sequence[ShownRow]:
        found = [transaction("a", S0, open_ms=open_ms), transaction("b")]
        return shown.list(replace(it, transactions=found), query).shown

    first, other = rows(1_200)
    assert all(a is b for a, b in zip(rows(1_300), (first, other), strict=True))
    local.undecided["s0"] = 6
    later = rows(1_300)
    assert (later[0] is first, later[1] is other) == (False, True)


def test_partitions_of_streams_that_may_not_be_known_are_left_out_of_a_transaction() -> None:
    found = [transaction("a", S0, T0, open_ms=5)]
    it = moment(image(stream("s", partition())), transactions=found, now_ms=NOW_MS)
    shown = View(Waiting(s0=1, t0=1), Traffic(), EventLog(), lambda name: name == "s")
    (row,) = shown.list(it, Query(show="transactions")).rows
    assert (row["partitions"], row["held_up"]) == (1, 1)
    assert [held["stream"] for held in row["furthest"]] == ["s"]


class Rows(LocalPartitions):
    """Counts what is asked of each partition."""

    def __init__(self) -> None:
        super().__init__()
        self.kept_asked = self.ends_asked = 0

    def kept(self, tp: TopicPartition) -> LocalReplicaState | None:
        self.kept_asked += 1
        return super().kept(tp)

    def end(self, tp: TopicPartition) -> int | None:
        self.ends_asked += 1
        return super().end(tp)


def test_what_large_streams_and_groups_hold_is_added_up_in_turns() -> None:
    local = Rows()
    tps = [TopicPartition("s", number) for number in range(10_000)]
    group = Progress("g", dict.fromkeys(tps, 4))
    it = moment(image(stream("s", *[partition()] * 10_000)), groups=[group])
    shown = view(local)
    for query in (Query(), Query(show="groups")):
        longest, before = 0, local.kept_asked + local.ends_asked
        for _ in shown.prepare(it, query):
            asked = local.kept_asked + local.ends_asked
            longest, before = max(longest, asked - before), asked
        assert longest == SUMMED_MAX
    assert (local.kept_asked, local.ends_asked) == (10_000, 10_000)
    assert shown.list(it, Query()).rows[0]["records"] == 100_000
    assert shown.list(it, Query(show="groups")).rows[0]["lag"] == 60_000
    assert (local.kept_asked, local.ends_asked) == (10_000, 10_000), "it was known by now"


def test_pages_of_partitions_begin_where_the_last_one_ended() -> None:
    well, unwell = partition(), partition(isr=(1,))
    streams = [
        stream(f"s{n}", *(unwell if (n + p) % 3 else well for p in range(n + 1))) for n in range(7)
    ]
    it, shown = moment(image(*streams)), view()
    for only in ("", "under_replicated", "led_here", "leaderless"):
        whole = shown.list(it, Query(show="partitions", only=only, size=200))
        assert whole.total == len(whole.rows)
        for size in (1, 2, 3, 5, 200):
            rows = []
            for page in range(whole.total // size + 2):
                rows += shown.list(
                    it, Query(show="partitions", only=only, page=page, size=size)
                ).rows
            assert rows == whole.rows
