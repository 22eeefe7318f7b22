"""What a stream of counters goes with, beyond what JetStream says of it."""

from typing import Any
from uuid import UUID

import pytest

from streamlog.errors import InvalidRequest, InvalidStreamConfig
from streamlog.metadata.controller.streams import update_stream
from streamlog.metadata.image.feature_level import check_writable
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import StreamCreated
from streamlog.metadata.stream.stream_config import StreamConfig


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"cleanup_policy": "compact"}, "cleanup_policy: compact"),
        ({"partitions": 2, "partition_by": "key"}, "partition_by"),
        ({"partitions": 2, "partition_by": "tokens:1"}, "partition_by"),
        ({"discard": "new"}, "cannot use discard new"),
        ({"allow_ttl": True}, "cannot use message TTLs"),
        ({"retention": "interest"}, "can only use limits retention"),
    ],
)
def test_what_would_make_totals_wrong_is_refused(settings: dict[str, Any], told: str) -> None:
    StreamConfig.of(name="s", **settings)
    with pytest.raises(InvalidStreamConfig, match=told):
        StreamConfig.of(name="s", allow_counter=True, **settings)


def test_partitions_with_subjects_of_their_own_may_count() -> None:
    assert StreamConfig.of(name="s", allow_counter=True, partitions=3).allow_counter


@pytest.mark.parametrize("was", [True, False])
def test_it_is_as_the_stream_was_made(was: bool) -> None:
    created = StreamCreated(
        stream_id=UUID(int=1), config=StreamConfig.of(name="s", allow_counter=was), created_ms=0
    )
    image = MetadataImage("c").apply(created, offset=0, epoch=1)
    with pytest.raises(InvalidStreamConfig, match="can not change message counter setting"):
        update_stream(image, StreamConfig.of(name="s", allow_counter=not was))


def test_nodes_of_an_earlier_level_hear_nothing_of_it() -> None:
    plain, counting = (
        StreamCreated(
            stream_id=UUID(int=1), config=StreamConfig.of(name="s", allow_counter=on), created_ms=0
        )
        for on in (False, True)
    )
    assert "allow_counter" not in plain.config.model_dump()
    check_writable([plain], 1)
    with pytest.raises(InvalidRequest, match="needs feature level 3"):
        check_writable([counting], 2)
    check_writable([counting], 3)
