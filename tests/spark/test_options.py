import pytest

from pyspark_streamlog.options.option_names import BATCH, NAMES, SOCKET, STREAM
from pyspark_streamlog.options.read_options import SourceOptions, TriggerLimits
from streamlog.errors import ConfigError
from streamlog.model import TopicPartition
from streamlog.wire.special_offsets import EARLIEST, LATEST


def test_defaults() -> None:
    options = SourceOptions.parse({"path": "/data"})
    assert (options.starting, options.ending) == (EARLIEST, LATEST)
    assert options.subscription.names_nothing
    assert options.task_bytes_max is None
    assert options.fail_on_data_loss
    assert options.check_crc
    assert not options.include_headers


def test_names_are_not_kept_apart_by_case() -> None:
    given = {"PATH": "/data", "includeheaders": "TRUE", "batchrows": "7", "minPARTITIONS": "3"}
    options = SourceOptions.parse(given)
    assert (options.include_headers, options.batch_rows, options.tasks_min) == (True, 7, 3)


def test_offsets_are_given_by_words_or_json() -> None:
    given = {
        "path": "/data",
        "startingOffsets": '{"orders": {"0": 5, "1": -2}}',
        "endingOffsets": '{"orders": {"0": 9, "1": -1}}',
    }
    options = SourceOptions.parse(given)
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    assert options.starting == {first: 5, second: EARLIEST}
    assert options.ending == {first: 9, second: LATEST}


def test_streams_are_named_by_list_pattern_or_assignment() -> None:
    orders, payments = TopicPartition("orders", 1), TopicPartition("payments", 0)
    listed = SourceOptions.parse({"path": "/", "subscribe": "orders, payments"}).subscription
    assert listed.wants(orders)
    assert listed.wants(payments)
    matched = SourceOptions.parse({"path": "/", "subscribePattern": "ord.*"}).subscription
    assert matched.wants(orders)
    assert not matched.wants(payments)
    assigned = SourceOptions.parse({"path": "/", "assign": '{"orders": [1]}'}).subscription
    assert assigned.wants(orders)
    assert not assigned.wants(TopicPartition("orders", 0))


@pytest.mark.parametrize("name", [*STREAM, *SOCKET])
def test_an_option_that_has_no_meaning_in_a_batch_read_of_files_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: it belongs to"):
        SourceOptions.parse({"path": "/data", name.lower(): "1"})


@pytest.mark.parametrize("name", BATCH)
def test_an_option_of_batch_reads_is_refused_in_a_stream(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: it belongs to batch reads"):
        SourceOptions.parse({"path": "/data", name.lower(): "1"}, streaming=True)


def test_a_secret_is_not_repeated_in_the_error() -> None:
    with pytest.raises(ConfigError, match=r"^security\.password: ") as caught:
        SourceOptions.parse({"servers": "a:1", "security.password": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_a_misspelt_option_is_refused_with_the_right_spelling() -> None:
    with pytest.raises(ConfigError, match=r"startingoffset: .*; did you mean startingOffsets\?"):
        SourceOptions.parse({"path": "/data", "startingoffset": "earliest"})
    with pytest.raises(ConfigError, match=r"xyzzy: .*; there are path, servers, subscribe"):
        SourceOptions.parse({"path": "/data", "xyzzy": "1"})


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
        SourceOptions.parse({"path": "/data"} | {name: value})


def test_servers_or_a_path_are_needed() -> None:
    with pytest.raises(ConfigError, match=r"^servers: is missing, and so is path; name the nodes"):
        SourceOptions.parse({"subscribe": "orders"})
    with pytest.raises(ConfigError, match=r"^servers: path is given, too"):
        SourceOptions.parse({"servers": "a:1", "path": "/data"})


def test_defaults_of_a_stream() -> None:
    options = SourceOptions.parse({"servers": "a:1"}, streaming=True)
    assert options.starting == LATEST
    assert options.limits == TriggerLimits()
    assert options.limits.delay_max_ms == 15 * 60_000
    assert (options.fetch.max_bytes, options.fetch.timeout_ms) == (4 << 20, 120_000)
    assert not options.security.tls


def test_limits_of_a_stream() -> None:
    given = {
        "servers": "a:1",
        "startingOffsets": '{"orders": {"0": -1}}',
        "maxOffsetsPerTrigger": "100",
        "minOffsetsPerTrigger": "10",
        "maxBytesPerTrigger": "1000",
        "maxTriggerDelay": "2 s",
    }
    limits = SourceOptions.parse(given, streaming=True).limits
    assert limits == TriggerLimits(100, 10, 1000, 2_000)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"maxTriggerDelay": "soon", "minOffsetsPerTrigger": "1"}, "maxTriggerDelay: .*is no time"),
        ({"maxTriggerDelay": "1m"}, "maxTriggerDelay: .*minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "minOffsetsPerTrigger: 9 is"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger: '0' is wrong"),
    ],
)
def test_limits_that_make_no_sense(given: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^{problem}"):
        SourceOptions.parse({"servers": "a:1"} | given, streaming=True)


def test_times_of_partitions() -> None:
    given = {"servers": "a:1", "startingOffsetsByTimestamp": '{"orders": {"0": 1000}}'}
    options = SourceOptions.parse(given)
    assert options.starting_times == {TopicPartition("orders", 0): 1000}
    assert SourceOptions.parse(given | {"startingTimestamp": "7"}).starting_times == 7


def test_what_others_call_an_option() -> None:
    with pytest.raises(ConfigError, match="did you mean servers"):
        SourceOptions.parse({"servers": "a:1", "kafka.bootstrap.servers": "a:1"})


@pytest.mark.parametrize("name", ["security.password", "kafka.sasl.jaas.config", "token"])
def test_no_option_holds_a_secret(name: str) -> None:
    with pytest.raises(ConfigError, match="no secret may be one; name a file") as caught:
        SourceOptions.parse({"servers": "a:1", name: "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_two_ways_to_name_streams_contradict() -> None:
    with pytest.raises(ConfigError, match=r"^subscribePattern: subscribe is given, too"):
        SourceOptions.parse({"path": "/", "subscribe": "a", "subscribePattern": "b"})


def test_every_option_is_known_by_one_spelling() -> None:
    names = [name.lower() for name in NAMES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "name",
    [
        "fs.s3a.access.key",
        "fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.session.token",
        "AWS_ACCESS_KEY_ID",
        "aws_secret_access_key",
        "store.accessKey",
        "fs.azure.account.key.name.dfs.core.windows.net",
    ],
)
def test_credentials_of_a_store_are_told_where_they_belong(name: str) -> None:
    with pytest.raises(ConfigError) as found:
        SourceOptions.parse({"servers": "a:1", "store": "s3://b/c", name: "hush"})
    assert "AWS_ACCESS_KEY_ID and its kin in the environment of driver and executors" in str(
        found.value
    )
    assert "hush" not in str(found.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"store": "s3://key:hush@b/c"}, "store: an option's value is shown"),
        ({"store": "s3://b/c", "store.endpoint": "http://a:hush@h"}, "store.endpoint: an option's"),
        ({"store": "ftp://b/c"}, "store: 'ftp://b/c' is not of a known kind; name s3://bucket"),
        ({"store.endpoint": "http://h"}, "store.endpoint: store is missing"),
        ({"encryption.keys": "k=env:K"}, "encryption.keys: it belongs to reading by path"),
        ({"tier.url": "s3://b"}, "did you mean store"),
    ],
)
def test_a_store_that_cannot_be_meant_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as found:
        SourceOptions.parse({"servers": "a:1", "subscribe": "s", **options})
    assert message in str(found.value)
    assert "hush" not in str(found.value)


def test_a_store_goes_with_servers_and_with_keys() -> None:
    options = {"servers": "a:1", "store": "s3://b/c", "encryption.keys": "k=env:K"}
    parsed = SourceOptions.parse({**options, "store.endpoint": "http://h:1"})
    assert parsed.store is not None
    assert (parsed.store.url, parsed.store.endpoint) == ("s3://b/c", "http://h:1")
    with pytest.raises(ConfigError, match="store: it belongs to reading from servers"):
        SourceOptions.parse({"path": "/a", "store": "s3://b/c"})
