from itertools import product

import pytest

from streamlog.cli.stream.commands import told
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.metadata.stream.write_state import standstill


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ((), "takes records"),
        (("paused",), "is paused; publishers are refused until it is resumed"),
        (("readonly",), "is read-only"),
        (("paused", "readonly"), "is read-only, and paused"),
        (("sealed",), "is sealed"),
        (("sealed", "paused"), "is sealed"),
    ],
)
def test_what_is_said(settings: tuple[str, ...], text: str) -> None:
    config = StreamConfig.of(name="s", **dict.fromkeys(settings, True))
    assert told(config.model_dump()) == f"stream s {text}"


def test_it_takes_records_only_where_it_does() -> None:
    names = ("paused", "readonly", "sealed")
    for flags in product((False, True), repeat=3):
        config = StreamConfig.of(name="s", **dict(zip(names, flags, strict=True)))
        assert ("takes records" in told(config.model_dump())) == (standstill(config) is None)
