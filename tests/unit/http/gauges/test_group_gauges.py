"""What a scrape tells of consumer groups."""

from collections.abc import Mapping

from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from streamlog.groups.service import GroupProgress
from streamlog.http.gauges.group_gauges import LagGauges
from streamlog.model import TopicPartition

A0, B0 = TopicPartition("a", 0), TopicPartition("b", 0)


LABELS = ("group", "stream", "partition", "state")


def samples(gauges: LagGauges) -> dict[tuple[str, ...], float]:
    text = generate_latest(gauges).decode()
    return {
        (sample.name.removeprefix("streamlog_"), *named(sample.labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def named(labels: Mapping[str, str]) -> list[str]:
    return [labels[name] for name in LABELS if name in labels]


def test_offsets_lags_members_and_states() -> None:
    groups = [GroupProgress("x", "Stable", 2, {A0: 7, B0: 3}), GroupProgress("y", "Empty", 0, {})]
    found = samples(LagGauges(groups, omitted=3, ends={A0: 10}))
    assert found["consumer_group_committed_offset", "x", "a", "0"] == 7
    assert found["consumer_group_lag", "x", "a", "0"] == 3
    assert found["consumer_group_committed_offset", "x", "b", "0"] == 3
    assert ("consumer_group_lag", "x", "b", "0") not in found, "its end is not known"
    assert found["consumer_group_state", "x", "Stable"] == 1
    assert ("consumer_group_state", "x", "Empty") not in found
    assert found["consumer_group_members", "x"] == 2
    assert found["consumer_group_members", "y"] == 0
    assert found["consumer_groups_series_omitted",] == 3


def test_a_lag_is_never_negative() -> None:
    """A follower's high watermark is a fetch behind that which the consumer was told."""
    gauges = LagGauges([GroupProgress("x", "Stable", 2, {A0: 7})], omitted=0, ends={A0: 5})
    assert samples(gauges)["consumer_group_lag", "x", "a", "0"] == 0
