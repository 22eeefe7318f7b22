import pytest

from streamlog.nats_tools.burst import (
    BLOCK_BYTES,
    BLOCK_MESSAGES,
    BurstLoad,
    block_messages,
    payload,
    shares,
)


@pytest.mark.parametrize("count", [1, 2, 7, 1000])
@pytest.mark.parametrize("connections", [1, 2, 3, 10])
def test_connections_share_a_load_and_none_has_nothing(count: int, connections: int) -> None:
    parts = list(shares(BurstLoad("s", 100, count, in_flight=4000), connections))
    assert sum(part.count for part in parts) == count
    assert len(parts) == min(count, connections)
    assert max(part.count for part in parts) - min(part.count for part in parts) <= 1
    assert min(part.count for part in parts) > 0
    assert sum(part.in_flight for part in parts) <= 4000


@pytest.mark.parametrize(
    ("load", "messages"),
    [
        (BurstLoad("s", 100, 1_000_000, in_flight=4000), BLOCK_MESSAGES),
        (BurstLoad("s", 0, 1_000_000, in_flight=4000), BLOCK_MESSAGES),
        (BurstLoad("s", 100, 1_000_000, in_flight=7), 7),
        (BurstLoad("s", 100, 1_000_000, in_flight=7, acks=False), BLOCK_MESSAGES),
        (BurstLoad("s", 100, 3, in_flight=4000), 3),
        (BurstLoad("s", BLOCK_BYTES // 2, 1_000_000, in_flight=4000), 2),
        (BurstLoad("s", 10 * BLOCK_BYTES, 1_000_000, in_flight=4000), 1),
    ],
)
def test_a_write_is_neither_too_large_nor_more_than_may_be_in_flight(
    load: BurstLoad, messages: int
) -> None:
    assert block_messages(load) == messages


def test_a_payload_is_of_its_size_and_one_line() -> None:
    assert [len(payload(size)) for size in (0, 1, 1024)] == [0, 1, 1024]
    assert payload(5000).isalnum()
