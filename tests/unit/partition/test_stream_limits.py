from streamlog.config import LogSection
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.partition.stream_limits import NEVER, log_settings, sync_policy

NODE = LogSection(segment_bytes=8192, segment_age_ms=500, sync="os")


def test_the_node_decides_what_the_stream_leaves_open() -> None:
    config = StreamConfig.of(name="s")
    settings = log_settings(config, NODE)
    assert (settings.segment_bytes, settings.segment_age_ms) == (8192, 500)
    assert settings.index_interval_bytes == NODE.index_interval_bytes
    assert not settings.is_limited
    assert sync_policy(config, NODE) == "os"


def test_files_of_a_stream_with_limits_are_small_beside_them() -> None:
    node = LogSection()
    unlimited = log_settings(StreamConfig.of(name="s"), node)
    assert unlimited.segment_bytes == node.segment_bytes
    assert unlimited.early_age_ms == unlimited.early_records == NEVER
    config = StreamConfig.of(
        name="s", retention_bytes=100 << 20, retention_ms=60_000, retention_messages=4_000
    )
    settings = log_settings(config, node)
    assert settings.segment_bytes == 25 << 20
    assert settings.segment_age_ms == node.segment_age_ms
    early = settings.early_bytes, settings.early_age_ms, settings.early_records
    assert early == (8 << 20, 15_000, 1_000)
    small = log_settings(StreamConfig.of(name="s", retention_bytes=100), node)
    assert small.segment_bytes == 8 << 20
    own = log_settings(config.changed(segment_bytes=1 << 30), node)
    assert own.segment_bytes == 1 << 30


def test_the_stream_decides_what_it_names() -> None:
    config = StreamConfig.of(
        name="s",
        segment_bytes=4096,
        segment_age_ms=900,
        index_interval_bytes=0,
        retention_bytes=1,
        retention_ms=1000,
        retention_messages=3,
        sync="commit",
    )
    settings = log_settings(config, NODE)
    assert (settings.segment_bytes, settings.segment_age_ms) == (4096, 900)
    assert settings.index_interval_bytes == 0
    limits = (settings.retention_bytes, settings.retention_ms, settings.retention_messages)
    assert limits == (1, 1000, 3)
    assert sync_policy(config, NODE) == "commit"
