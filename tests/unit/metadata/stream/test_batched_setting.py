"""Who hears of fast batches, and which streams have none."""

from uuid import UUID

import pytest

from streamlog.errors import InvalidRequest, InvalidStreamConfig
from streamlog.metadata.image.feature_level import check_writable
from streamlog.metadata.image.records import StreamCreated
from streamlog.metadata.stream.stream_config import StreamConfig


def created(allow_batched: bool) -> StreamCreated:
    config = StreamConfig.of(name="s", allow_batched=allow_batched)
    return StreamCreated(stream_id=UUID(int=1), config=config, created_ms=0)


def test_nodes_of_an_earlier_level_hear_nothing_of_it() -> None:
    assert "allow_batched" not in created(False).config.model_dump()
    check_writable([created(False)], 1)
    with pytest.raises(InvalidRequest, match="needs feature level 3"):
        check_writable([created(True)], 2)
    check_writable([created(True)], 3)


def test_a_mirror_takes_none() -> None:
    mirror = '{"name":"o"}'
    StreamConfig.of(name="s", mirror=mirror, subjects=())
    with pytest.raises(InvalidStreamConfig, match="can not also use batch publishing"):
        StreamConfig.of(name="s", mirror=mirror, subjects=(), allow_batched=True)
