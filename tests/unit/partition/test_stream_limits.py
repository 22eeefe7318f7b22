from streamlog.config import LogSection
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.partition.stream_limits import log_settings, sync_policy

NODE = LogSection(segment_bytes=8192, segment_age_ms=500, sync="os")


def test_the_node_decides_what_the_stream_leaves_open() -> None:
    config = StreamConfig.of(name="s")
    settings = log_settings(config, NODE)
    assert (settings.segment_bytes, settings.segment_age_ms) == (8192, 500)
    assert settings.index_interval_bytes == NODE.index_interval_bytes
    assert not settings.is_limited
    assert sync_policy(config, NODE) == "os"


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
