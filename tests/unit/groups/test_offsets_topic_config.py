import pytest

from streamlog.config import GroupsSection
from streamlog.groups.offsets_topic_config import config_of


@pytest.mark.parametrize(
    ("nodes", "replicas", "min_isr"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (9, 3, 2)]
)
def test_one_node_may_be_lost(nodes: int, replicas: int, min_isr: int) -> None:
    config = config_of(GroupsSection(offsets_partitions=2), nodes)
    assert (config.replicas, config.min_isr, config.subjects) == (replicas, min_isr, ())
    assert (config.partitions, config.sync, config.is_compacted) == (2, "commit", True)
