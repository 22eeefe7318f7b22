"""The schema of a stream's values travels with the stream, as one of its settings."""

import json

import pytest

from streamlog.errors import InvalidStreamConfig
from streamlog.metadata.stream.settings_translation import (
    from_jetstream,
    from_topic_configs,
    level_of,
    to_jetstream,
    to_topic_configs,
)
from streamlog.metadata.stream.stream_config import StreamConfig

TEXT = "json " + json.dumps({"properties": {"id": {"type": "integer"}}})


def test_kafkas_clients_and_jetstreams_see_it() -> None:
    config = StreamConfig.of(name="s", table_schema=TEXT)
    assert to_topic_configs(config)["streamlog.table_schema"] == TEXT
    assert to_jetstream(config)["metadata"] == {"streamlog.table_schema": TEXT}
    assert from_topic_configs({"streamlog.table_schema": TEXT})["table_schema"] == TEXT
    assert StreamConfig.of(**from_jetstream(to_jetstream(config))) == config


def test_it_needs_the_level_of_its_neighbours_and_is_not_written_without() -> None:
    assert level_of(StreamConfig.of(name="s", table_schema=TEXT)) == 3
    blank = StreamConfig.of(name="s")
    assert level_of(blank) == 1
    assert "table_schema" not in blank.model_dump()
    assert blank.changed(table_schema=TEXT).changed(table_schema="") == blank


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("yaml a", "table_schema: write json SCHEMA, avro SCHEMA or protobuf"),
        ('json {"properties": {"a": {"type": "string", "format": "email"}}}',
         "table_schema: a has the format 'email', which is not checked"),
        ('avro {"type": "string"}', "table_schema: it is not the schema of an Avro record"),
        ("json " + 33_000 * "x", "table_schema: more than 32767 bytes"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_when_it_is_set(text: str, told: str) -> None:
    with pytest.raises(InvalidStreamConfig, match=told) as raised:
        StreamConfig.of(name="s", table_schema=text)
    assert len(str(raised.value)) < 300
