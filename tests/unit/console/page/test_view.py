"""Pages of lists: small, whatever there is in the cluster."""

import json
import time
from dataclasses import replace
from typing import Any, cast

import pytest

from streamlog.console.page.chronicle import Chronicle
from streamlog.console.page.query import ROWS_MAX, Query
from streamlog.console.page.rates import Rates
from streamlog.console.page.view import View
from streamlog.errors import InvalidRequest
from streamlog.model import NodeId, TopicPartition
from tests.page_world import LocalPartitions, Progress, image, moment, partition, stream

S0, S1, T0 = TopicPartition("s", 0), TopicPartition("s", 1), TopicPartition("t", 0)


def view(local: LocalPartitions | None = None) -> View:
    return View(local or LocalPartitions(), Rates(), Chronicle())


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

    def listed(**query: str) -> list[str]:
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


def test_a_page_of_ten_thousand_partitions_is_small_and_quick() -> None:
    local = LocalPartitions()
    shown, it = view(local), moment(image(stream("s", *[partition()] * 10_000)))
    query = Query(show="partitions", page=3, size=ROWS_MAX, filter="s")
    found = shown.list(it, query)
    assert (found.total, found.rows[0]["partition"], len(found.rows)) == (10_000, 600, ROWS_MAX)
    assert local.asked == ROWS_MAX, "none but those shown are looked at"
    assert len(json.dumps(found.rows)) < 100_000
    shown.summary(it)
    began = time.process_time()
    for _ in range(10):
        shown.whole(it, query)
    assert time.process_time() - began < 0.5, "an image that has not changed is not walked again"


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
    ],
)
def test_a_wrong_question_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match=next(iter(given))):
        Query.of(given)


def test_what_is_asked_for() -> None:
    given = {"show": "partitions", "filter": "a", "only": "led_here", "page": "2", "size": "7"}
    assert Query.of(given) == Query("partitions", "a", "", "led_here", 2, 7)
    assert Query.of({}, show="events").show == "events"


class Counted(dict[str, Any]):
    """Streams, and how often all of them were gone through."""

    rounds = 0

    def items(self) -> Any:
        self.rounds += 1
        return super().items()


def test_all_streams_are_gone_through_once_for_an_image() -> None:
    streams = Counted({name: stream(name, partition()) for name in ("b", "a", "c")})
    it, shown = replace(image(), streams=cast("Any", streams)), view()
    for page in (0, 1, 0, 1):
        rows = shown.list(moment(it), Query(page=page, size=2)).rows
        assert [row["name"] for row in rows] == (["c"] if page else ["a", "b"])
    assert streams.rounds == 1
    assert [row["name"] for row in shown.list(moment(it), Query(filter="c")).rows] == ["c"]
    assert streams.rounds == 2, "another filter"
    shown.list(moment(replace(it, offset=it.offset + 1)), Query(filter="c"))
    assert streams.rounds == 3, "another image"
