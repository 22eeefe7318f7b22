import pytest

from pyspark_streamlog.offsets import EARLIEST, LATEST
from pyspark_streamlog.options import NAMES, REFUSED, ReadOptions
from streamlog.errors import ConfigError
from streamlog.model import TopicPartition


def test_defaults() -> None:
    options = ReadOptions.parse({"path": "/data"})
    assert (options.starting, options.ending) == (EARLIEST, LATEST)
    assert options.subscription.names_nothing
    assert options.task_bytes_max == 128 * 1024 * 1024
    assert options.fail_on_data_loss
    assert options.check_crc
    assert not options.include_headers


def test_names_are_not_kept_apart_by_case() -> None:
    given = {"PATH": "/data", "includeheaders": "TRUE", "batchrows": "7", "minPARTITIONS": "3"}
    options = ReadOptions.parse(given)
    assert (options.include_headers, options.batch_rows, options.tasks_min) == (True, 7, 3)


def test_offsets_are_given_by_words_or_json() -> None:
    given = {
        "path": "/data",
        "startingOffsets": '{"orders": {"0": 5, "1": -2}}',
        "endingOffsets": '{"orders": {"0": 9, "1": -1}}',
    }
    options = ReadOptions.parse(given)
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    assert options.starting == {first: 5, second: EARLIEST}
    assert options.ending == {first: 9, second: LATEST}


def test_streams_are_named_by_list_pattern_or_assignment() -> None:
    orders, payments = TopicPartition("orders", 1), TopicPartition("payments", 0)
    listed = ReadOptions.parse({"path": "/", "subscribe": "orders, payments"}).subscription
    assert listed.wants(orders)
    assert listed.wants(payments)
    matched = ReadOptions.parse({"path": "/", "subscribePattern": "ord.*"}).subscription
    assert matched.wants(orders)
    assert not matched.wants(payments)
    assigned = ReadOptions.parse({"path": "/", "assign": '{"orders": [1]}'}).subscription
    assert assigned.wants(orders)
    assert not assigned.wants(TopicPartition("orders", 0))


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_an_option_that_has_no_meaning_here_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: "):
        ReadOptions.parse({"path": "/data", name.lower(): "1"})


def test_a_secret_is_not_repeated_in_the_error() -> None:
    with pytest.raises(ConfigError, match=r"^security\.password: ") as caught:
        ReadOptions.parse({"path": "/data", "security.password": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_a_misspelt_option_is_refused_with_the_right_spelling() -> None:
    with pytest.raises(ConfigError, match=r"startingoffset: .*; did you mean startingOffsets\?"):
        ReadOptions.parse({"path": "/data", "startingoffset": "earliest"})
    with pytest.raises(ConfigError, match=r"xyzzy: .*; there are path, subscribe"):
        ReadOptions.parse({"path": "/data", "xyzzy": "1"})


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("path", " ", "is empty"),
        ("subscribe", "", "is empty"),
        ("subscribePattern", "(", "is not a regular expression"),
        ("assign", "orders", "is not JSON"),
        ("assign", "[]", "is not a JSON object"),
        ("assign", "{}", "names no partition"),
        ("assign", '{"orders": 1}', "has no list of partitions"),
        ("assign", '{"orders": ["1"]}', "has no list of partitions"),
        ("assign", '{"orders": [true]}', "has no list of partitions"),
        ("startingOffsets", "latest", "would read nothing"),
        ("startingOffsets", '{"orders": {"0": -1}}', "would read nothing"),
        ("startingOffsets", "newest", "is not JSON"),
        ("startingOffsets", '{"orders": 5}', "has no object of partitions"),
        ("startingOffsets", '{"orders": {"0": -3}}', "is wrong"),
        ("startingOffsets", '{"orders": {"0": "5"}}', "is wrong"),
        ("startingOffsets", '{"orders": {"zero": 5}}', "is wrong"),
        ("endingOffsets", "earliest", "would read nothing"),
        ("endingOffsets", '{"orders": {"0": -2}}', "would read nothing"),
        ("startingTimestamp", "yesterday", "is wrong"),
        ("startingTimestamp", "-1", "is wrong"),
        ("endingTimestamp", "1.5", "is wrong"),
        ("startingOffsetsByTimestampStrategy", "nearest", "is wrong"),
        ("includeHeaders", "yes", "is wrong"),
        ("failOnDataLoss", "0", "is wrong"),
        ("minPartitions", "0", "is wrong"),
        ("maxBytesPerPartition", "128m", "is wrong"),
        ("batchRows", "-1", "is wrong"),
        ("batchBytes", str(1 << 30), "is wrong"),
    ],
)
def test_a_wrong_value_is_named(name: str, value: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: .*{problem}"):
        ReadOptions.parse({"path": "/data"} | {name: value})


def test_a_path_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"^path: is missing; name a node's data folder"):
        ReadOptions.parse({"subscribe": "orders"})


def test_two_ways_to_name_streams_contradict() -> None:
    with pytest.raises(ConfigError, match=r"^subscribePattern: subscribe is given, too"):
        ReadOptions.parse({"path": "/", "subscribe": "a", "subscribePattern": "b"})


def test_every_option_is_known_by_one_spelling() -> None:
    names = [name.lower() for name in (*NAMES, *REFUSED)]
    assert len(set(names)) == len(names)
