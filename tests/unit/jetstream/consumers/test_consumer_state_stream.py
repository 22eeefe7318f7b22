"""The internal stream that keeps consumers."""

import pytest

from streamlog.config import ConsumersSection
from streamlog.jetstream.consumers.consumer_service import config_of


@pytest.mark.parametrize(("nodes", "replicas", "min_isr"), [(1, 1, 1), (2, 2, 1), (5, 3, 2)])
def test_one_node_may_be_lost_and_nothing_confirmed_with_it(
    nodes: int, replicas: int, min_isr: int
) -> None:
    config = config_of(ConsumersSection(), nodes)
    assert (config.replicas, config.min_isr) == (replicas, min_isr)
    assert (config.sync, config.cleanup_policy) == ("commit", "compact")


def test_what_is_confirmed_need_not_be_on_the_disk() -> None:
    assert config_of(ConsumersSection(state_sync="os"), 1).sync == "os"
