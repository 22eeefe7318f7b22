import json
from typing import Any

import pytest

from streamlog.errors import InvalidChannelConfig
from streamlog.ledger.core.channel_config import (
    CONFIGURATION_BYTES_MAX,
    ChannelConfig,
    OrderingNode,
    later_format,
    parse_config,
)
from tests.ledger_stream import ANN, BOB, channel


def changed(**fields: Any) -> bytes:
    return json.dumps({**json.loads(channel().encode()), **fields}).encode()


def test_a_configuration_comes_back() -> None:
    config = channel(
        writers=(ANN.identity, BOB.identity),
        consenters=(OrderingNode(name="n1", address="h:1"),),
    )
    assert parse_config(config.encode()) == config


def test_only_the_channel_has_no_default() -> None:
    assert parse_config(b'{"channel":"c"}') == ChannelConfig(channel="c")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"channel": "a.b"}, "channel"),
        ({"channel": "c\n"}, "channel"),
        ({"channel": ""}, "channel"),
        ({"sequence": -1}, "sequence"),
        ({"sequence": "0"}, "sequence"),
        ({"sequence": 0.0}, "sequence"),
        ({"sequence": True}, "sequence"),
        ({"sequence": 2**63}, "sequence"),
        ({"format": 2}, "format"),
        ({"colour": "red"}, "colour"),
        ({"limits": {"batch_size": 0}}, "limits.batch_size"),
        ({"limits": {"preferred_max_bytes": 9, "absolute_max_bytes": 8}}, "preferred_max_bytes"),
        ({"writers": [{"name": "ann", "public_key": "00"}]}, "writers.0.public_key"),
        ({"consenters": [{"name": "a"}, {"name": "a"}]}, "consenters has a name twice"),
    ],
)
def test_a_wrong_one_is_told_by_its_key(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidChannelConfig, match=told):
        parse_config(changed(**fields))


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_what_is_no_object_is_told(text: bytes) -> None:
    with pytest.raises(InvalidChannelConfig):
        parse_config(text)
    assert later_format(text) is None


def test_its_size_is_bounded() -> None:
    with pytest.raises(InvalidChannelConfig, match="at most"):
        parse_config(changed() + b" " * CONFIGURATION_BYTES_MAX)


def test_a_later_format_is_known_for_one() -> None:
    assert later_format(changed(format=2, sequence=7, colour="red")) == (2, 7)
    assert later_format(changed()) is None
    assert later_format(changed(format="2")) is None
    assert later_format(b'{"format":2}') is None


def test_who_cuts_blocks() -> None:
    assert channel().is_consenter("n1")
    named = channel(consenters=(OrderingNode(name="n1"),))
    assert (named.is_consenter("n1"), named.is_consenter("n2")) == (True, False)


def test_who_signs_blocks() -> None:
    key = ANN.identity.public_key
    config = channel(consenters=(OrderingNode(name="ann", public_key=key), OrderingNode(name="n2")))
    assert config.vouchers == (ANN.identity,)
