"""Stories of whole clusters. ``SIMULATION_SEEDS=from:to`` plays others, or one again, and
``SIMULATION_SEEDS=from:`` others until it is stopped. ``PYTHONHASHSEED=0`` has to be set to play one
again, as ``make test`` sets it.
"""

import os
import subprocess
import sys
from collections.abc import Iterable

import pytest

from tests.simulation.cluster.cluster_world import ClusterWorld
from tests.simulation.cluster.consumer_groups import ConsumerGroupsWorld, GroupCoordinatorsEnd
from tests.simulation.cluster.crowd import (
    CrowdWorld,
    SmallCrowdWorld,
    SmallPortionsWorld,
)
from tests.simulation.cluster.cruel import FollowersLag, VotersRestart
from tests.simulation.cluster.expectations import ExpectationsWorld
from tests.simulation.cluster.fast_batches import FastBatchesWorld, FastRepetitionsWait
from tests.simulation.cluster.healing import NodeLost
from tests.simulation.cluster.host import Host
from tests.simulation.cluster.late import (
    DeposedLeadersSend,
    JoinersLosePower,
    LeadersForAMoment,
    ReplicasReturnSoon,
)
from tests.simulation.cluster.older import OlderCopiesReturn
from tests.simulation.cluster.once import CopiesComeLate
from tests.simulation.cluster.operations import OperationsWorld
from tests.simulation.cluster.ports_world import CopiesComeLateOverLinks, LinksAlone, PortsWorld
from tests.simulation.cluster.schedules import (
    FiredMessagesGo,
    FiringLeadersEnd,
    RollupsAreRepeated,
    SchedulesWorld,
)
from tests.simulation.cluster.share_groups import (
    ShareGroupsWorld,
    ShareLeadersEnd,
    ShareLeadersLate,
)
from tests.simulation.cluster.silence import ControllersMove, SilentNodes
from tests.simulation.cluster.sources import FedLeadersEnd, FeedsRestart, SourcesWorld
from tests.simulation.cluster.swarm import (
    AlternatingWorld,
    ControllersForget,
    DamageWorld,
    FencedComeBack,
    FilesLostInUse,
    FilesLostWhileJoining,
    LimitsWorld,
    MovesWorld,
    NamesakesOfKilled,
    NatsHangs,
    PurgesWorld,
    RecreatedWorld,
    SwarmWorld,
)
from tests.simulation.cluster.tiered import TieredLeadersEnd, TieredWorld, UncleanTieredLeaders
from tests.simulation.cluster.transactions import (
    CoordinatorsEnd,
    MarkersAreCut,
    TransactionsWorld,
    ZombiesReturn,
)
from tests.simulation.seeds import LONG_BUDGET, Budget, Make, Player, chosen, shares, told

SEEDS = range(30)
SHARE = 10
"""Seeds of one test, for several workers to share."""
SHARE_BUDGET = Budget(seeds_min=2, cpu_s=3)
CRUEL_SEEDS = range(10)
CRUEL_BUDGET = Budget(seeds_min=2, cpu_s=3)
SWARM_BUDGET = Budget(seeds_min=1, cpu_s=1.5)
SWARMS = [
    pytest.param(SwarmWorld, range(10), id="all"),
    pytest.param(RecreatedWorld, range(8), id="streams-created-anew"),
    pytest.param(NamesakesOfKilled, range(3, 7), id="namesakes-of-killed"),
    pytest.param(ControllersForget, range(3, 7), id="controllers-forget"),
    pytest.param(FencedComeBack, range(3, 7), id="fenced-come-back"),
    pytest.param(SilentNodes, range(3, 9), id="silent-nodes"),
    pytest.param(ControllersMove, range(3, 6), id="controllers-move"),
    pytest.param(NodeLost, range(3, 7), id="a-node-lost-for-good"),
    pytest.param(OperationsWorld, range(3, 7), id="operations"),
    pytest.param(MovesWorld, range(6), id="replicas-moved-to-and-fro"),
    pytest.param(SmallPortionsWorld, range(3, 6), id="partitions-taken-one-by-one"),
    pytest.param(PurgesWorld, range(3, 9), id="records-purged"),
    pytest.param(LimitsWorld, range(3, 7), id="limits-of-messages"),
    pytest.param(DamageWorld, range(3, 8), id="files-lost"),
    pytest.param(FilesLostInUse, range(3, 7), id="files-lost-in-use"),
    pytest.param(FilesLostWhileJoining, range(3, 7), id="files-lost-while-joining"),
    pytest.param(AlternatingWorld, range(3, 7), id="leaders-alternate"),
    pytest.param(NatsHangs, range(3, 6), id="nats-hangs"),
    pytest.param(PortsWorld, range(3, 9), id="ports-and-links"),
    pytest.param(LinksAlone, range(3, 7), id="links-alone"),
    pytest.param(CopiesComeLate, range(3, 7), id="copies-come-late"),
    pytest.param(CopiesComeLateOverLinks, range(3, 7), id="copies-come-late-over-links"),
    pytest.param(LeadersForAMoment, range(3, 6), id="leaders-for-a-moment"),
    pytest.param(ReplicasReturnSoon, range(3, 6), id="replicas-return-soon"),
    pytest.param(JoinersLosePower, range(3, 6), id="joiners-lose-power"),
    pytest.param(DeposedLeadersSend, range(3, 6), id="deposed-leaders-send"),
    pytest.param(OlderCopiesReturn, range(3, 7), id="older-copies-return"),
    pytest.param(FastBatchesWorld, range(3, 9), id="fast-batches"),
    pytest.param(FastRepetitionsWait, range(3, 7), id="repetitions-of-fast-batches-wait"),
    pytest.param(SchedulesWorld, range(3, 4), id="schedules"),
    pytest.param(FiringLeadersEnd, range(3, 5), id="leaders-end-that-fire"),
    pytest.param(FiredMessagesGo, range(3, 5), id="fired-messages-go"),
    pytest.param(RollupsAreRepeated, range(3, 5), id="rollups-are-repeated"),
    pytest.param(SourcesWorld, range(3, 5), id="sources-and-mirrors"),
    pytest.param(FedLeadersEnd, range(3, 7), id="leaders-end-that-take-from-others"),
    pytest.param(FeedsRestart, range(3, 7), id="feeds-restart"),
    pytest.param(TransactionsWorld, range(3, 7), id="transactions"),
    pytest.param(ZombiesReturn, range(3, 5), id="zombies-return"),
    pytest.param(MarkersAreCut, range(3, 5), id="markers-are-cut"),
    pytest.param(CoordinatorsEnd, range(3, 5), id="transaction-coordinators-end"),
    pytest.param(ConsumerGroupsWorld, range(3, 7), id="consumer-groups"),
    pytest.param(GroupCoordinatorsEnd, range(3, 6), id="group-coordinators-end"),
    pytest.param(ShareGroupsWorld, range(3, 7), id="share-groups"),
    pytest.param(ShareLeadersEnd, range(3, 6), id="share-coordinators-end"),
    pytest.param(ShareLeadersLate, range(3, 6), id="share-leaders-late"),
    pytest.param(TieredWorld, range(3, 9), id="tiered-streams"),
    pytest.param(TieredLeadersEnd, range(3, 9), id="leaders-end-that-copy-segments"),
    pytest.param(ExpectationsWorld, range(3, 7), id="expected-sequences"),
    pytest.param(UncleanTieredLeaders, range(3, 9), id="unclean-leaders-behind-the-store"),
]
"""From the third seed on most are short stories of three nodes. Longer ones, of more nodes, are slow tests."""


TELL = """
from tests.simulation.cluster.swarm import RecreatedWorld
from tests.simulation.seeds import told

print(*told(RecreatedWorld, 3), sep="\\n")
"""
"""Several streams, some of one name."""


@pytest.mark.parametrize("seeds", shares(SEEDS, SHARE))
def test_what_is_acknowledged_is_kept(seeds: Iterable[int], player: Player) -> None:
    player.play(ClusterWorld, seeds, SHARE_BUDGET)


@pytest.mark.parametrize("seeds", shares(CRUEL_SEEDS, SHARE))
def test_what_is_acknowledged_is_kept_where_followers_lag(
    seeds: Iterable[int], player: Player
) -> None:
    player.play(FollowersLag, seeds, CRUEL_BUDGET)


@pytest.mark.parametrize(("world", "seeds"), SWARMS)
def test_what_is_acknowledged_is_kept_in_a_swarm_of_faults(
    world: Make, seeds: range, player: Player
) -> None:
    player.play(world, chosen(seeds), SWARM_BUDGET)


def test_of_eight_nodes_only_those_that_die_are_missed(player: Player) -> None:
    player.play(SmallCrowdWorld, chosen(range(3, 5)), SWARM_BUDGET)


@pytest.mark.slow
def test_of_a_hundred_nodes_only_those_that_die_are_missed(player: Player) -> None:
    player.play(CrowdWorld, chosen(range(3, 4)))


@pytest.mark.slow
@pytest.mark.parametrize(("world", "seeds"), SWARMS)
def test_what_is_acknowledged_is_kept_in_a_swarm_of_faults_for_long(
    world: Make, seeds: range, player: Player
) -> None:
    player.play(world, chosen(range(1_000, 1_000 + 40 * len(seeds))), LONG_BUDGET)


@pytest.mark.slow
def test_what_is_acknowledged_is_kept_for_long(player: Player) -> None:
    player.play(ClusterWorld, chosen(range(1_000, 2_500)), LONG_BUDGET)


@pytest.mark.slow
def test_what_is_acknowledged_is_kept_where_followers_lag_for_long(player: Player) -> None:
    player.play(FollowersLag, chosen(range(1_000, 1_300)), LONG_BUDGET)


@pytest.mark.parametrize("world", [ClusterWorld, SwarmWorld, PortsWorld, TransactionsWorld])
def test_a_seed_tells_the_same_story_twice(world: Make) -> None:
    assert told(world, 4) == told(world, 4)


def test_a_story_knows_nothing_of_the_one_before() -> None:
    told(VotersRestart, 2)
    assert Host.latest is not None, "else there is nothing to be forgotten"
    told(PortsWorld, 0)


def test_a_seed_tells_the_same_story_in_every_process() -> None:
    stories = {
        subprocess.run(
            [sys.executable, "-c", TELL],
            env=os.environ | {"PYTHONHASHSEED": "0", "PYTHONMALLOC": allocator},
            capture_output=True,
            check=True,
            timeout=600,
        ).stdout
        for allocator in ("pymalloc", "malloc")  # objects are at other addresses
    }
    assert len(stories) == 1
    assert b"is created" in stories.pop()
