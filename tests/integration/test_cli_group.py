"""``streamlog group`` and the groups' series in ``/metrics``, with consumers of confluent-kafka."""

import threading
import urllib.request
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from tests.cluster_cli import Cli
from tools.nodes.server_process import wait_until


class Reader:
    """``with Reader(...)``: a member of a group, which has its partitions and commits nothing."""

    def __init__(self, cli: Cli, group: str, stream: str) -> None:
        self._assigned = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._stream = stream
        self._consumer = consumer(cli, group)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._assigned.wait(60)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        self._consumer.subscribe([self._stream], on_assign=lambda *_: self._assigned.set())
        while not self._stopping.is_set():
            self._consumer.poll(0.05)
        self._consumer.close()


def consumer(cli: Cli, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cli.servers,
            "group.id": group,
            "client.id": f"reader-of-{group}",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
            "log_level": 3,
        }
    )


def commit(cli: Cli, group: str, stream: str, *offsets: int, metadata: str = "") -> None:
    """Of partitions from 0 on, as a consumer that assigns them to itself."""
    member = consumer(cli, group)
    wanted = [TopicPartition(stream, i, it, metadata) for i, it in enumerate(offsets)]
    for it in member.commit(offsets=wanted, asynchronous=False) or ():
        assert it.error is None
    member.close()


def stream_of(cli: Cli, name: str, records: int, partitions: int = 1) -> None:
    """``records`` in each partition."""
    cli.ok(f"stream add {name} --subject {name} --replicas 3 --partitions {partitions}")
    for number in range(partitions):
        subject = name if number == 0 else f"{name}.{number}"
        if records:
            cli.ok(f"publish {subject} x --count {records} --ack")


def committed(cli: Cli, group: str) -> list[int | None]:
    return [it["committed_offset"] for it in cli.json(f"group info {group}")["partitions"]]


def in_list(cli: Cli, group: str) -> dict[str, Any] | None:
    return next((it for it in cli.json("group ls") if it["group"] == group), None)


def test_a_group_with_a_member(cli: Cli) -> None:
    stream_of(cli, "read", 10, partitions=2)
    commit(cli, "readers", "read", 4, metadata="as far as four")
    with Reader(cli, "readers", "read"):
        found = cli.json("group info readers")
        assert (found["state"], found["protocol_type"]) == ("Stable", "consumer")
        assert found["coordinator"] in {1, 2, 3}
        (member,) = found["members"]
        assert (member["client_id"], member["host"]) == ("reader-of-readers", "127.0.0.1")
        assert member["partitions"] == [{"stream": "read", "partition": i} for i in (0, 1)]
        first, second = found["partitions"]
        assert (first["committed_offset"], first["end_offset"], first["lag"]) == (4, 10, 6)
        assert first["metadata"].rstrip("\0") == "as far as four"  # the client sends a NUL, too
        assert (second["committed_offset"], second["end_offset"], second["lag"]) == (None, 10, None)
        assert first["member_id"] == second["member_id"] == member["member_id"]
        text = cli.ok("group info readers")
        assert "reader-of-readers" in text and "read/0+1" in text
        row = in_list(cli, "readers")
        assert row is not None
        assert (row["state"], row["members"], row["lag"]) == ("Stable", 1, 6)
        assert "readers" in cli.ok("group ls")

        for words in ("reset-offsets readers --to-latest --yes", "rm readers --yes"):
            said = cli.refused(f"group {words}")
            assert "has 1 member (reader-of-readers at 127.0.0.1); stop them first" in said
        said = cli.refused("group rm readers --offsets read --yes")
        assert "reader-of-readers at 127.0.0.1 reads that" in said
        assert committed(cli, "readers") == [4, None]
    wait_until(lambda: cli.json("group info readers")["state"] == "Empty", "it does not leave")


def test_groups_that_are_not_there(cli: Cli) -> None:
    for words in ("info absent", "rm absent --yes", "rm absent --offsets read --yes"):
        assert "there is no group 'absent'; `streamlog group ls`" in cli.refused(f"group {words}")
    said = cli.refused("group reset-offsets absent --to-earliest --yes")
    assert "there is no group 'absent'" in said and "--stream sets where a new one begins" in said
    for name in ("", "x" * 5_000):
        assert "is no name that a group may have" in cli.refused("group info", name)
    for words in ("ls", "info g", "reset-offsets g --to-latest", "rm g"):
        assert "Connection refused" in cli.refused(
            f"group {words}", "--bootstrap-server", "127.0.0.1:1"
        )


def test_a_group_goes_on_elsewhere(cli: Cli) -> None:
    stream_of(cli, "moved", 20, partitions=2)
    commit(cli, "movers", "moved", 5, 6)
    asked = cli.run("group reset-offsets movers --to-latest")
    assert asked.code == 1 and "Have group movers go on there?" in asked.err
    assert "stays as it is" in cli.ok("group reset-offsets movers --to-latest --dry-run")
    assert committed(cli, "movers") == [5, 6]

    said = cli.ok("group reset-offsets movers --to-latest --yes")
    assert "skips 15 records" in said and "skips 14 records" in said
    assert committed(cli, "movers") == [20, 20]
    plan = cli.json("group reset-offsets movers --shift-by -3 --stream moved --partition 1 --yes")
    assert plan["changed"] is True
    (change,) = plan["partitions"]
    assert (change["committed_offset"], change["new_offset"], change["repeated"]) == (20, 17, 3)
    assert committed(cli, "movers") == [20, 17]
    cli.ok("group reset-offsets movers --to-offset 7 --yes")
    assert committed(cli, "movers") == [7, 7]
    cli.ok("group reset-offsets movers --to-datetime 2000-01-01 --yes")
    assert committed(cli, "movers") == [0, 0]
    assert "no record is so late" in cli.ok(
        "group reset-offsets movers --to-datetime 2999-01-01T00:00Z --yes"
    )
    assert committed(cli, "movers") == [20, 20]
    assert "the log begins at 0" in cli.ok("group reset-offsets movers --shift-by -1000 --yes")
    assert committed(cli, "movers") == [0, 0]


def test_a_group_begins_where_it_is_told(cli: Cli) -> None:
    stream_of(cli, "begun", 5)
    assert "nothing was committed yet" in cli.ok(
        "group reset-offsets fresh --stream begun --to-offset 3 --yes"
    )
    assert committed(cli, "fresh") == [3]
    member = consumer(cli, "fresh")
    member.subscribe(["begun"])
    message = member.poll(60)
    member.close()
    assert message is not None and message.error() is None
    assert message.offset() == 3


def test_resets_that_cannot_be(cli: Cli) -> None:
    stream_of(cli, "bounds", 5)
    commit(cli, "bound", "bounds", 2)
    assert "bounds-0 has no offset 6, only 0 to 5" in cli.refused(
        "group reset-offsets bound --to-offset 6 --yes"
    )
    assert "'nowhere'" in cli.refused(
        "group reset-offsets bound --to-offset 0 --stream nowhere --yes"
    )
    assert "no partition 9" in cli.refused(
        "group reset-offsets bound --to-offset 0 --stream bounds --partition 9 --yes"
    )
    for words, problem in (
        ("", "GROUP: no position is given"),
        ("--to-latest --shift-by 1", "--to-latest: cannot go with --shift-by"),
        ("--to-datetime soon", "--to-datetime: 'soon' is no time"),
        ("--to-latest --partition 0", "--partition: needs one stream"),
    ):
        assert problem in cli.refused(f"group reset-offsets bound --yes {words}", code=2)
    assert committed(cli, "bound") == [2]


def test_groups_are_removed(cli: Cli) -> None:
    stream_of(cli, "gone", 5)
    stream_of(cli, "kept", 5)
    for group in ("gone-1", "gone-2", "gone-3"):
        commit(cli, group, "gone", 2)
    commit(cli, "gone-3", "kept", 1)
    assert cli.run("group rm gone-1").code == 1, "it asks first"
    cli.refused("group rm gone-1 absent --yes")
    assert in_list(cli, "gone-1") is not None, "none goes if one cannot"
    said = cli.ok("group rm gone-1 gone-2 --yes")
    assert said == "group gone-1 is removed\ngroup gone-2 is removed\n"
    assert in_list(cli, "gone-1") is None and in_list(cli, "gone-2") is None
    assert "has committed nothing in 'read'" in cli.refused("group rm gone-3 --offsets read --yes")
    assert cli.ok("group rm gone-3 --offsets gone --yes") == "group gone-3 has forgotten gone\n"
    (left,) = cli.json("group info gone-3")["partitions"]
    assert (left["stream"], left["committed_offset"]) == ("kept", 1)
    removed = {"group": "gone-3", "offsets": None}
    assert cli.json("group rm gone-3 --yes") == {"removed": [removed]}


def series(trio: Any, group: str) -> list[tuple[str, dict[str, str], float]]:
    """Of all nodes together."""
    found = []
    for node in trio.addresses["nodes"]:
        with urllib.request.urlopen(node["http"] + "/metrics", timeout=10) as answer:
            text = answer.read().decode()
        found += [
            (sample.name.removeprefix("streamlog_consumer_group_"), sample.labels, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.labels.get("group") == group
        ]
    return found


def test_lags_are_told_once_over_all_nodes(cli: Cli, trio: Any) -> None:
    stream_of(cli, "scraped", 10, partitions=3)
    single = "stream add lone --subject lone --replicas 1 --partitions 3"
    cli.ok(single)  # most of it is not on the coordinator's node
    for number in range(3):
        cli.ok(f"publish {'lone' if number == 0 else f'lone.{number}'} x --count 4 --ack")
    commit(cli, "scrapers", "scraped", 1, 2, 3)
    commit(cli, "scrapers", "lone", 1, 1, 1)
    expected = {("scraped", i): 9.0 - i for i in range(3)} | {("lone", i): 3.0 for i in range(3)}

    def lags() -> dict[tuple[str, int], float]:
        rows = [it for it in series(trio, "scrapers") if it[0] == "lag"]
        found = {(it["stream"], int(it["partition"])): value for _, it, value in rows}
        assert len(found) == len(rows), "two nodes tell of one"
        return found

    wait_until(lambda: lags() == expected, "the lags are not told")
    found = series(trio, "scrapers")
    assert [value for name, _, value in found if name == "members"] == [0]
    assert [it["state"] for name, it, _ in found if name == "state"] == ["Empty"]
    assert sum(value for name, _, value in found if name == "committed_offset") == 9
