from dataclasses import replace
from typing import Any

from streamlog.metadata.commands import ReportLeader
from streamlog.metadata.image.feature_level import LEVEL_MAX
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.nodes.session_times import SHORT_LEASES_LEVEL, SessionTimes
from streamlog.metadata.nodes.sessions import REPORTED_PARTITIONS_MAX, Sessions
from streamlog.model import NodeId
from tests.controller_world import World

TIMES = SessionTimes(
    heartbeat_ms=2, pause_ms=10, session_ms_min=20, session_ms_max=100, lease_ms=17
)
ONE, TWO, THREE = (NodeId(number) for number in (1, 2, 3))


def sessions() -> Sessions:
    return Sessions(TIMES, report_window_ms=50)


def test_heartbeats_extend_a_session() -> None:
    known = sessions()
    known.heard(ONE, 5, 1_000)
    assert known.live(1_099) == {ONE}
    assert known.live(1_100) == frozenset()
    known.heard(ONE, 5, 1_050)
    assert known.live(1_100) == {ONE}
    assert known.live(1_149) == {ONE}
    assert known.live(1_150) == frozenset()


def test_a_fenced_node_has_no_session() -> None:
    known = sessions()
    known.heard(ONE, 5, 0)
    known.fenced(ONE)
    assert known.live(1) == known.heard_of == frozenset()


def test_a_process_that_is_gone_has_no_session() -> None:
    known = sessions()
    known.gone(ONE)
    known.heard(ONE, 5, 1_000)
    known.gone(ONE)
    known.gone(ONE)
    assert known.live(1_001) == frozenset()
    known.heard(ONE, 5, 1_002)
    assert known.live(1_003) == {ONE}


def test_only_the_newest_registration_counts() -> None:
    known = sessions()
    known.heard(ONE, 5, 0)
    known.heard(ONE, 9, 50)
    known.heard(ONE, 5, 149)
    assert known.live(149) == {ONE}
    assert known.live(150) == frozenset()


def test_a_new_controller_gives_everybody_a_whole_session() -> None:
    world = World(3)
    world.fence(3)
    known = sessions()
    known.heard(THREE, 0, 10_000)
    known.started(world.image, 500)
    assert known.live(500) == {ONE, TWO}
    assert known.live(599) == {ONE, TWO}
    assert known.live(600) == frozenset()


def report(world: World, node: int, **changed: Any) -> ReportLeader:
    partition = world.partition()
    fields = {
        "node_id": node,
        "node_epoch": world.epoch(node),
        "stream": "s",
        "partition": 0,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
    }
    return ReportLeader(**{**fields, **changed})


def led_by_one(replicas: int) -> World:
    world = World(replicas)
    world.place(*range(1, replicas + 1))
    return world


def test_a_new_controller_tells_hearsay_from_what_it_has_heard() -> None:
    world = World(2)
    known = sessions()
    known.started(world.image, 1_000)
    assert known.heard_of == frozenset()
    known.heard(ONE, world.epoch(1), 1_010)
    assert known.live(1_020) == {ONE, TWO}
    assert known.heard_of == {ONE}
    assert known.hearsay(1_020) == {TWO}
    assert known.hearsay(1_100) == frozenset()
    known.started(world.image, 2_000)
    assert known.heard_of == frozenset()


def test_a_majority_of_the_followers_is_believed() -> None:
    world, known = led_by_one(5), sessions()
    assert not known.report(world.image, report(world, 2), 0)
    assert not known.report(world.image, report(world, 3), 10)
    assert not known.report(world.image, report(world, 3), 11)
    assert known.report(world.image, report(world, 4), 49)
    assert not known.report(world.image, report(world, 5), 49)  # the tally was cleared


def test_one_of_one_and_two_of_two_are_a_majority() -> None:
    world = led_by_one(2)
    assert sessions().report(world.image, report(world, 2), 0)
    world, known = led_by_one(3), sessions()
    assert not known.report(world.image, report(world, 2), 0)
    assert known.report(world.image, report(world, 3), 0)


def test_words_of_one_window_count_together() -> None:
    world, known = led_by_one(3), sessions()
    assert not known.report(world.image, report(world, 2), 0)
    assert not known.report(world.image, report(world, 3), 50)
    assert known.report(world.image, report(world, 2), 99)


def test_words_about_another_epoch_do_not_count() -> None:
    world, known = led_by_one(3), sessions()
    assert not known.report(world.image, report(world, 2), 0)
    world.elect(2)
    world.elect(1)
    assert not known.report(world.image, report(world, 3), 1)


def test_reports_that_are_not_about_what_is_are_worth_nothing() -> None:
    world, known = led_by_one(2), sessions()
    changes: list[dict[str, object]] = [
        {"leader": 2},
        {"leader_epoch": 7},
        {"node_epoch": 0},
        {"node_id": 9},
        {"node_id": 1, "node_epoch": world.epoch(1)},
        {"stream": "t"},
        {"partition": 1},
        {"partition": -1},
    ]
    for changed in changes:
        assert not known.report(world.image, report(world, 2, **changed), 0)
    world.alter_isr(1)
    assert not known.report(world.image, report(world, 2), 0)
    world.fence(1)
    assert not known.report(world.image, report(world, 2), 0)


def test_the_tally_is_bounded() -> None:
    world, known = World(3), sessions()
    world.create(partitions=REPORTED_PARTITIONS_MAX // 2 + 1, replicas=3)
    world.create("t", partitions=REPORTED_PARTITIONS_MAX // 2, replicas=3)
    for name in ("s", "t"):
        for number, partition in enumerate(world.image.stream(name).partitions):
            node = next(it for it in partition.isr if it != partition.leader)
            said = report(
                world, node, stream=name, partition=number, leader=partition.leader,
                leader_epoch=partition.leader_epoch,
            )  # fmt: skip
            assert not known.report(world.image, said, 0)
    first = world.partition()
    last = next(it for it in first.isr if it != first.leader and it != first.isr[1])
    assert not known.report(world.image, report(world, last), 1)  # the other's word is forgotten


def test_the_time_that_most_live_nodes_agree_on() -> None:
    known = sessions()
    assert known.agreed_ahead_ms(0) is None
    for node, ahead_ms in ((ONE, 0), (TWO, -600_000), (THREE, -600_010)):
        known.heard(node, 5, 0)
        known.told_clock(node, ahead_ms)
    assert known.agreed_ahead_ms(50) == -600_000
    known.told_clock(TWO, None)
    assert known.agreed_ahead_ms(50) is None, "one of three against another"
    known.gone(THREE)
    known.gone(TWO)
    assert known.agreed_ahead_ms(50) == 0, "who is gone has no say"
    known.started(World(3).image, 60)
    assert known.agreed_ahead_ms(70) is None, "another controller has another clock"


def beats(known: Sessions, node: NodeId, *times_ms: int) -> None:
    for now_ms in times_ms:
        known.heard(node, 5, now_ms, short_lease=True)


def test_a_node_with_short_leases_has_a_short_session() -> None:
    known = sessions()
    beats(known, ONE, 1_000)
    session_ms = TIMES.detector().timeout_ms
    assert session_ms < TIMES.session_ms_max
    assert known.live(1_000 + session_ms - 1) == {ONE}
    assert known.live(1_000 + session_ms) == frozenset()
    assert known.next_expiry_ms(1_000) == 1_000 + session_ms


def test_a_node_that_opens_its_logs_has_a_long_session() -> None:
    """It sends no heartbeats before; its lease is as short as later."""
    known = sessions()
    known.heard(ONE, 5, 1_000)
    assert known.live(1_099) == {ONE}
    beats(known, ONE, 1_010)
    assert known.live(1_099) == frozenset()


def test_irregular_heartbeats_make_a_session_longer() -> None:
    known = sessions()
    now_ms = 1_000
    for pause_ms in [1, 15] * 20:
        beats(known, ONE, now_ms)
        now_ms += pause_ms
    beats(known, ONE, now_ms)
    assert known.live(now_ms + TIMES.detector().timeout_ms) == {ONE}
    assert known.live(now_ms + TIMES.session_ms_max) == frozenset()


def test_a_node_whose_disk_hangs_is_silent_since_then() -> None:
    known = sessions()
    beats(known, ONE, 1_000)
    session_ms = TIMES.detector().timeout_ms
    known.heard(ONE, 5, 1_002, short_lease=True, stall_ms=3)
    assert known.stalled == {ONE}
    assert known.live(999 + session_ms - 1) == {ONE}
    assert known.live(999 + session_ms) == frozenset()
    known.heard(ONE, 5, 1_040, short_lease=True)
    assert known.stalled == frozenset()
    assert known.live(1_040) == {ONE}


def test_nodes_that_are_busy_with_what_was_decided_are_waited_for() -> None:
    known = sessions()
    beats(known, ONE, 1_000)
    known.decided(4 * 70, 1_000)
    assert known.live(1_069) == {ONE}
    assert known.live(1_070) == frozenset()
    known.decided(1_000_000, 2_000)
    beats(known, ONE, 2_000)
    assert known.live(2_000 + TIMES.session_ms_max) == frozenset()


def test_the_dead_are_not_busy() -> None:
    known = sessions()
    beats(known, ONE, 1_000)
    known.gone(ONE)
    known.decided(400, 1_000)
    assert known.live(1_001) == frozenset()


def short(level: int = LEVEL_MAX) -> MetadataImage:
    return replace(World(3).image, level=level)


def test_the_controller_before_is_silent_since_its_voters_heard_of_it() -> None:
    known = sessions()
    known.started(short(), 500, predecessor=ONE, silence_ms=15, voters={ONE, TWO})
    assert known.live(500) == {ONE, TWO, THREE}
    assert known.live(504) == {ONE, TWO, THREE}
    assert known.live(505) == {TWO, THREE}
    assert known.live(519) == {TWO, THREE}
    assert known.live(520) == {THREE}
    assert known.live(599) == {THREE}
    assert known.live(600) == frozenset()


def test_a_controller_whose_leases_have_run_out_is_gone_at_once() -> None:
    known = sessions()
    known.started(short(), 500, predecessor=ONE, silence_ms=TIMES.session_ms_min, voters={ONE})
    assert known.live(500) == {TWO, THREE}


def test_nodes_of_earlier_builds_hold_their_leases() -> None:
    known = sessions()
    image = short(level=SHORT_LEASES_LEVEL - 1)
    known.started(image, 500, predecessor=ONE, silence_ms=90, voters={ONE, TWO})
    assert known.live(599) == {ONE, TWO, THREE}
