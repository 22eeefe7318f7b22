from pathlib import Path

import pytest

from pyspark_streamlog.options.read_options import SourceOptions
from streamlog.arrow.offset_ranges import plan_offset_ranges
from streamlog.arrow.range_reader import open_location
from streamlog.errors import ConfigError, CorruptFile, PartitionNotFound, StreamNotFound
from tests.record_batches import HandRecord, hand_batch
from tests.spark.data_folder import DataFolder

TEN = [[b"v"] * 5, [b"v"] * 5]


def ranges(path: Path, **options: str) -> dict[str, tuple[int, int]]:
    parsed = SourceOptions.parse({"path": str(path), **options})
    snapshot = plan_offset_ranges(open_location(parsed), parsed)
    return {str(r.name): (r.start_offset, r.end_offset) for r in snapshot}


@pytest.fixture
def two_streams(folder: DataFolder) -> DataFolder:
    folder.segment(TEN)
    folder.segment(TEN, 10)
    folder.segment([[b"v"] * 3], partition=1)
    folder.segment(TEN, stream="payments")
    folder.segment(TEN, stream="__internal")
    return folder


ORDERS = {"orders-0": (0, 20), "orders-1": (0, 3)}


def test_a_path_may_be_a_data_folder_its_streams_or_one_stream(two_streams: DataFolder) -> None:
    path = two_streams.path
    assert ranges(path, subscribe="orders") == ORDERS
    assert ranges(path / "streams", subscribe="orders") == ORDERS
    assert ranges(path / "streams" / "orders") == ORDERS
    assert ranges(path / "streams" / "orders", subscribe="orders") == ORDERS


def test_a_url_of_a_file_is_a_path(two_streams: DataFolder) -> None:
    parsed = SourceOptions.parse({"path": f"file://{two_streams.path}/streams/orders"})
    assert len(plan_offset_ranges(open_location(parsed), parsed)) == 2


def test_streams_with_confusing_names_are_found(folder: DataFolder) -> None:
    folder.segment(TEN, stream="streams")
    folder.segment(TEN, stream="7")
    path = folder.path
    assert set(ranges(path, subscribePattern=".*")) == {"streams-0", "7-0"}
    assert set(ranges(path / "streams", subscribePattern=".*")) == {"streams-0", "7-0"}
    assert set(ranges(path / "streams" / "streams")) == {"streams-0"}


def test_a_partition_that_is_being_deleted_is_left_out(two_streams: DataFolder) -> None:
    two_streams.partition(partition=1).rename(two_streams.partition().parent / "1.f00.deleted")
    assert set(ranges(two_streams.path, subscribe="orders")) == {"orders-0"}


def test_partitions_are_chosen(two_streams: DataFolder) -> None:
    path = two_streams.path
    assert set(ranges(path, subscribe="orders,payments")) == {"orders-0", "orders-1", "payments-0"}
    assert set(ranges(path, subscribePattern="pay.*|__internal")) == {"payments-0"}
    assert set(ranges(path, assign='{"orders": [1]}')) == {"orders-1"}
    assert set(ranges(path, subscribe="__internal")) == {"__internal-0"}


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({}, ConfigError, "subscribe: no stream is named; .*orders, payments"),
        ({"subscribe": "nix"}, StreamNotFound, "no stream 'nix'; it has .*orders, payments"),
        ({"subscribePattern": "x.*"}, StreamNotFound, "no stream .* matches"),
        ({"assign": '{"nix": [0]}'}, StreamNotFound, "no stream 'nix'"),
        ({"assign": '{"orders": [7]}'}, PartitionNotFound, "no partition orders-7"),
    ],
)
def test_what_is_not_there_is_named(
    two_streams: DataFolder, options: dict[str, str], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        ranges(two_streams.path, **options)


def test_a_path_without_streams_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^path: there is no folder"):
        ranges(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"^path: .* holds no stream"):
        ranges(tmp_path)


def test_without_a_high_watermark_nothing_is_known_to_be_committed(folder: DataFolder) -> None:
    folder.segment(TEN)
    (folder.path / "high-watermark-checkpoint").unlink()
    with pytest.raises(ConfigError, match=r"there is no .*/high-watermark-checkpoint: .*unknown"):
        ranges(folder.path, subscribe="orders")


def test_a_damaged_checkpoint_is_refused(folder: DataFolder) -> None:
    folder.segment(TEN)
    file = folder.path / "high-watermark-checkpoint"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CorruptFile, match="high-watermark-checkpoint"):
        ranges(folder.path, subscribe="orders")


def test_the_high_watermark_is_never_passed(folder: DataFolder) -> None:
    folder.segment(TEN)
    folder.commit(7)
    assert ranges(folder.path, subscribe="orders") == {"orders-0": (0, 7)}


def test_a_partition_without_a_high_watermark_is_empty(folder: DataFolder) -> None:
    folder.segment(TEN)
    folder.high_watermarks.clear()
    folder.commit(1, stream="other")
    assert ranges(folder.path, subscribe="orders") == {"orders-0": (0, 0)}


@pytest.mark.parametrize("index", [True, False])
def test_a_torn_tail_is_not_counted_on(folder: DataFolder, index: bool) -> None:
    torn = hand_batch([HandRecord(b"torn")] * 5, 10)[:-3]
    folder.segment(TEN, torn=torn, index=index)
    folder.commit(15)
    assert ranges(folder.path, subscribe="orders") == {"orders-0": (0, 10)}


def test_nothing_below_the_log_start_is_read(folder: DataFolder) -> None:
    folder.segment(TEN, 20)
    assert ranges(folder.path, subscribe="orders") == {"orders-0": (20, 30)}
    folder.start_at(23)
    assert ranges(folder.path, subscribe="orders") == {"orders-0": (23, 30)}


def test_offsets_may_be_given_for_each_partition(two_streams: DataFolder) -> None:
    options = {
        "subscribe": "orders",
        "startingOffsets": '{"orders": {"0": 4, "1": -2}}',
        "endingOffsets": '{"orders": {"0": 17, "1": -1}}',
    }
    assert ranges(two_streams.path, **options) == {"orders-0": (4, 17), "orders-1": (0, 3)}


@pytest.mark.parametrize(
    ("offsets", "text"),
    [
        ('{"orders": {"0": 4}}', "startingOffsets: the read says nothing of orders-1"),
        ('{"orders": {"0": 4, "1": 0, "2": 0}}', "has no such partition as orders-2"),
        ('{"orders": {"0": 21, "1": 0}}', "orders-0: offset 21 is outside .*, \\[0, 20\\)"),
    ],
)
def test_offsets_that_do_not_fit_are_refused(
    two_streams: DataFolder, offsets: str, text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        ranges(two_streams.path, subscribe="orders", startingOffsets=offsets)


def test_offsets_outside_the_log_are_loss_or_the_nearest_inside(folder: DataFolder) -> None:
    folder.segment(TEN, 20)
    options = {
        "subscribe": "orders",
        "startingOffsets": '{"orders": {"0": 5}}',
        "endingOffsets": '{"orders": {"0": 99}}',
    }
    with pytest.raises(ConfigError, match=r"offset 5 is outside .* failOnDataLoss=false .* 20"):
        ranges(folder.path, **options)
    options["failOnDataLoss"] = "false"
    assert ranges(folder.path, **options) == {"orders-0": (20, 30)}


def test_a_start_above_the_end_is_refused(folder: DataFolder) -> None:
    folder.segment(TEN)
    options = {
        "subscribe": "orders",
        "startingOffsets": '{"orders": {"0": 8}}',
        "endingOffsets": '{"orders": {"0": 3}}',
    }
    with pytest.raises(ConfigError, match="orders-0: the read would start at 8 and end at 3"):
        ranges(folder.path, **options)


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("0", "99999999", (0, 20)),
        ("100000", "103000", (0, 15)),
        ("100001", "102000", (5, 10)),
        ("102001", "102002", (15, 15)),
    ],
)
def test_times_become_offsets(
    folder: DataFolder, start: str, end: str, expected: tuple[int, int], index: bool
) -> None:
    folder.segment(TEN, timestamp_ms=100_000, index=index)
    folder.segment(TEN, 10, timestamp_ms=102_000, index=index)
    options = {"startingTimestamp": start, "endingTimestamp": end, "startingOffsets": "earliest"}
    assert ranges(folder.path, subscribe="orders", **options) == {"orders-0": expected}


def test_times_of_single_records_are_looked_at(folder: DataFolder) -> None:
    """The batch starts at 1,000 ms and says that its latest is of 2,000 ms."""
    folder.segment([[HandRecord(timestamp_delta=i * 250) for i in range(5)]])
    found = ranges(folder.path, subscribe="orders", startingTimestamp="1500")
    assert found == {"orders-0": (2, 5)}


def test_a_start_after_the_last_record_is_an_error_or_the_end(folder: DataFolder) -> None:
    folder.segment(TEN, timestamp_ms=100_000)
    options = {"subscribe": "orders", "startingTimestamp": "200000"}
    with pytest.raises(ConfigError, match="startingTimestamp: orders-0 has no record at or after"):
        ranges(folder.path, **options)
    options["startingOffsetsByTimestampStrategy"] = "latest"
    assert ranges(folder.path, **options) == {"orders-0": (10, 10)}
