"""The pure cores that are mutated, and which tests are to kill their mutants."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutation.mutants import MutatedModule

ROOT: Final = Path(__file__).parents[2]

LEFT_OUT: Final = ("mistake", "tells_the_same_story", "for_long", "at_length")
"""In the names of properties and simulations that do not judge the code, or take too long: they plant mistakes, or
compare a story with itself.
"""


def is_left_out(node_id: str) -> bool:
    """Unit tests are not, whatever their names have: these speak of what is done \"for long\", too."""
    path, _, name = node_id.partition("::")
    return "unit" not in path.split("/") and any(part in name for part in LEFT_OUT)


@dataclass(frozen=True)
class Core:
    name: str
    files: tuple[str, ...]
    """Paths below ``streamlog``, or patterns of them."""
    tests: tuple[str, ...]
    """Below ``tests``. Which of them reach a line is found by running them."""

    @property
    def modules(self) -> list[MutatedModule]:
        paths = [path for name in self.files for path in sorted((ROOT / "streamlog").glob(name))]
        return [
            MutatedModule(path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."), path)
            for path in paths
            if path.name != "__init__.py"
        ]


CORES: Final = (
    Core(
        "raft",
        ("raft/*.py",),
        (
            "unit/raft",
            "scenarios",
            "unit/metadata/quorum/test_voter_sets.py",
            "unit/metadata/quorum/test_metadata_replica.py",
            "property/test_raft.py",
            "simulation/test_quorum.py",
        ),
    ),
    Core(
        "replication",
        (
            "replication/*.py",
            "partition/replication/fetch_session.py",
            "partition/replication/follower_append.py",
            "partition/replication/partition_follower.py",
            "partition/replication/repeated_fetch.py",
            "partition/replication/truncation.py",
        ),
        (
            "unit/replication",
            "scenarios",
            "unit/partition/replication",
            "unit/partition/tiering/test_unclean_tier.py",
            "unit/partition/test_moved_back.py",
            "unit/partition/test_recreated.py",
            "unit/partition/test_lost_files.py",
            "unit/partition/test_log_starts.py",
            "unit/partition/test_producer_state_manager.py",
            "property/test_leader_progress.py",
            "property/test_replicated_partition.py",
            "property/test_namesakes.py",
            "property/test_producers.py",
            "property/test_fetch_sessions.py",
            "simulation/test_cluster.py",
        ),
    ),
    Core(
        "partition",
        ("partition/state.py", "partition/producer_state_manager.py"),
        (
            "unit/partition",
            "property/test_producers.py",
            "property/test_transactions.py",
            "property/test_replicated_partition.py",
            "simulation/test_partition.py",
        ),
    ),
    Core(
        "recovery",
        (
            "log/recovery/*.py",
            "log/manifest.py",
            "log/checkpoint.py",
            "log/leader_epochs.py",
            "log/control_load.py",
        ),
        (
            "unit/log",
            "unit/partition/test_group_sync.py",
            "unit/partition/test_lost_files.py",
            "property/test_partition_log.py",
            "property/test_shared_end.py",
            "property/test_log_damage.py",
            "simulation/test_partition.py",
        ),
    ),
    Core(
        "groups",
        (
            "groups/assignors.py",
            "groups/consumer_group.py",
            "groups/coordinator.py",
            "groups/group.py",
            "groups/group_table.py",
            "groups/membership/*.py",
            "groups/offsets.py",
            "groups/records.py",
            "groups/replay.py",
        ),
        (
            "unit/groups",
            "property/test_groups.py",
            "property/test_consumer_groups.py",
            "property/test_assignors.py",
            "property/test_simple_assignor.py",
            "simulation/test_groups.py",
        ),
    ),
    Core(
        "delivery",
        ("delivery/*.py",),
        (
            "unit/delivery",
            "unit/shares",
            "unit/jetstream/consumers",
            "property/test_delivery.py",
            "property/test_consumer.py",
            "property/test_pending_records.py",
            "property/test_share_partition.py",
            "simulation/test_consumers.py",
        ),
    ),
    Core(
        "transactions",
        (
            "transactions/coordinator.py",
            "transactions/marker_sender.py",
            "transactions/records.py",
            "transactions/replay.py",
            "transactions/transaction.py",
        ),
        (
            "unit/transactions",
            "unit/kafka/handlers/test_transactions.py",
            "property/test_transaction_coordinator.py",
            "property/test_transactions.py",
        ),
    ),
)
