"""Known mistakes, planted into the code itself, break a promise in some story; and without its
mistake the very same story has kept all promises by that time.
"""

import re
from collections.abc import Callable

import pytest

from tests.simulation.asking_world import AskingWorld
from tests.simulation.cluster.cluster_world import ClusterWorld
from tests.simulation.cluster.consumer_groups import ConsumerGroupsWorld, GroupCoordinatorsEnd
from tests.simulation.cluster.cruel import (
    FewReplicasLosePower,
    FollowersLag,
    LeadersDie,
    VotersRestart,
)
from tests.simulation.cluster.expectations import ExpectationsWorld
from tests.simulation.cluster.fast_batches import FastRepetitionsWait
from tests.simulation.cluster.healing import NodeLost
from tests.simulation.cluster.late import DeposedLeadersSend, JoinersLosePower, LeadersForAMoment
from tests.simulation.cluster.loop import let_go
from tests.simulation.cluster.older import OlderCopiesReturn
from tests.simulation.cluster.once import CopiesComeLate
from tests.simulation.cluster.operations import OperationsWorld
from tests.simulation.cluster.ports_world import CopiesComeLateOverLinks, PortsWorld
from tests.simulation.cluster.quorum_world import QuorumWorld
from tests.simulation.cluster.schedules import FiredMessagesGo, FiringLeadersEnd, RollupsAreRepeated
from tests.simulation.cluster.share_groups import (
    ShareGroupsWorld,
    ShareLeadersEnd,
    ShareLeadersLate,
)
from tests.simulation.cluster.silence import ControllersMove, SilentNodes
from tests.simulation.cluster.sources import FedLeadersEnd, FeedsRestart, GapsAreCut, SourcesWorld
from tests.simulation.cluster.swarm import (
    ControllersForget,
    FencedComeBack,
    FilesLostInUse,
    FilesLostWhileJoining,
    IngestsLate,
    LimitsWorld,
    LogsLoseTheirBeginning,
    NamesakesLate,
    NamesakesOfKilled,
    NatsHangs,
    PurgesWorld,
    RepetitionsWait,
    ReplicasReturnLate,
)
from tests.simulation.cluster.tiered import TieredLeadersEnd, UncleanTieredLeaders
from tests.simulation.cluster.transactions import (
    CoordinatorsEnd,
    MarkersAreCut,
    TransactionsWorld,
    ZombiesReturn,
)
from tests.simulation.cluster.voter_changes import FoldersReturn, VotersChangeAtOnce
from tests.simulation.fast_world import FastWorld
from tests.simulation.group_mistakes import (
    begin_no_sessions_with_another_coordinator,
    commit_for_members_of_any_epoch,
    commit_for_whoever_asks,
    confirm_before_it_is_saved,
    give_what_others_still_have,
    keep_no_deliveries,
    save_for_any_leader,
    take_acknowledgements_of_former_owners,
)
from tests.simulation.healing_mistakes import (
    replace_before_it_is_copied,
    replace_whoever_is_fenced,
    take_the_time_of_an_earlier_absence,
)
from tests.simulation.mistakes import (
    accept_members_that_have_restarted,
    acknowledge_fast_batches_when_appended,
    acknowledge_purges_alone,
    answer_before_saving_the_epoch,
    answer_operations_before_the_commit,
    apply_when_nats_has_answered,
    await_the_high_watermark_alone,
    await_the_high_watermark_alone_in_batches,
    believe_whoever_has_the_time_of_append,
    bring_back_by_what_was_there_before,
    call_each_other,
    commit_older_epochs_by_counting,
    count_what_is_not_committed,
    count_what_is_not_committed_as_stored,
    count_what_is_not_synced,
    count_with_the_logged_in_sync_replicas,
    create_streams_at_once,
    cut_at_the_high_watermark,
    follow_by_name,
    forget_deletions_with_the_controller,
    forget_the_ids_of_batches,
    forget_the_vote_at_restart,
    forget_what_was_made_and_deleted_at_once,
    forget_who_was_heard,
    go_on_over_gaps,
    ignore_incarnations,
    keep_one_message_less,
    keep_what_an_ended_link_wanted,
    lend_leases_longer_than_a_session,
    lend_to_unaware_nodes,
    open_without_ids_that_cannot_be_read,
    owe_no_erasure,
    pass_on_what_came_over_a_link,
    refuse_by_a_log_that_may_be_old,
    repair_without_the_leaders_word,
    send_again_what_may_be_done,
    store_what_follows_a_refused_one,
    take_a_missing_segment_for_a_log_start,
    take_appends_of_older_ingests,
    take_high_watermarks_by_name,
    take_links_by_any_token,
    take_what_deposed_leaders_send,
    take_what_was_sent_to_others,
    trust_older_copies,
    trust_that_leader_epochs_match,
    who_lags_may_join,
    write_ids_of_another_leader,
)
from tests.simulation.quorum_mistakes import (
    change_two_voters_at_once,
    count_votes_of_any_folder,
    found_a_quorum_by_a_majority,
    judge_by_the_committed_voters,
    keep_what_was_not_written_among_what_waits,
    replace_a_folder_in_one_step,
)
from tests.simulation.schedule_mistakes import (
    fire_before_the_log_is_read,
    fire_what_may_have_fired,
    fire_what_was_there_when_it_was_looked_at,
    forget_what_others_have_fired,
    owe_nothing_of_former_leaders,
    take_erasures_in_the_log_for_committed,
    take_what_is_not_found_for_erased,
)
from tests.simulation.seeds import Ending, MakeTimed, Player
from tests.simulation.source_mistakes import (
    acknowledge_purges_that_do_nothing,
    find_places_by_what_is_committed,
    forget_the_places_of_sources,
    hold_up_retention,
    leave_the_gaps_of_former_leaders,
    let_retention_take_the_only_places,
    name_no_gaps,
    purge_without_the_places,
    remember_places_of_earlier_leaderships,
    take_another_stream_for_its_namesake,
    take_what_is_not_committed,
)
from tests.simulation.tier_mistakes import (
    begin_where_the_local_log_does,
    lead_without_a_look_at_the_store,
    let_go_of_what_is_not_in_the_store,
    purge_the_local_log_alone,
)
from tests.simulation.transaction_mistakes import (
    answer_before_it_is_committed,
    be_stable_up_to_markers_that_are_not_committed,
    complete_when_one_partition_knows,
    coordinate_producers_of_any_epoch,
    count_offsets_of_open_transactions,
    forget_what_a_cut_marker_had_ended,
    send_no_markers_of_the_coordinator_before,
    take_batches_that_are_there,
)

Plant = Callable[[pytest.MonkeyPatch], None]

LOST = "(leads|is in sync) .* committed records|is acknowledged at|, not Record"
UNPURGED = "purged up to|a purge up to"
MIXED = f"{LOST}|published to an earlier stream"
UNCOMMITTED = f"{LOST}|the high watermark of .* falls"
STORED_TWICE = r": \S+ at \d+, \d+"
REFUSED = r"is stored, and was refused"
CUT_SHORT = r"begins at \d+; purges and limits|nothing can be read at"
ACKNOWLEDGED_GONE = r"is acknowledged at \d+, wrongly"
ACTS_LATE = "knows the metadata up to"
HEARD_TWICE = "hears .* twice"
VOTES_TWICE = "votes in epoch|is led by"
OVERWRITTEN = "leads with (another batch|.* of )"
NOT_IN_THE_LOG = "and something else is there|are given away twice"

TWICE = r"is at \d+ and at|is acknowledged at \d+ and at"
FIRED = "is fired (on|by)"
TAKEN_AGAIN = "has brought from .* comes after that of"
ENDED_WRONGLY = "was to be committed|told otherwise|is torn|never asked for"
REPLACED_SOON = "leaves node .*, which was seen"
LEASE_LEFT = "is fenced and has a lease of"
ASKED = "erases more than|acknowledged at"

CASES: list[tuple[Plant, MakeTimed, range, str]] = [
    (cut_at_the_high_watermark, ClusterWorld, range(7, 67), LOST),
    (who_lags_may_join, FollowersLag, range(2, 62), LOST),
    (bring_back_by_what_was_there_before, FilesLostInUse, range(5, 65), LOST),
    (repair_without_the_leaders_word, FilesLostWhileJoining, range(23, 83), LOST),
    (count_what_is_not_synced, FewReplicasLosePower, range(15, 75), LOST),
    (count_with_the_logged_in_sync_replicas, FollowersLag, range(38, 98), LOST),
    (acknowledge_purges_alone, PurgesWorld, range(14, 74), UNPURGED),
    (keep_one_message_less, LimitsWorld, range(1, 61), CUT_SHORT),
    (
        let_go_of_what_is_not_in_the_store,
        TieredLeadersEnd,
        range(30),
        "the object store has all up to",
    ),
    (purge_the_local_log_alone, TieredLeadersEnd, range(1, 31), UNPURGED),
    (begin_where_the_local_log_does, TieredLeadersEnd, range(3, 33), "purges allow"),
    (lead_without_a_look_at_the_store, UncleanTieredLeaders, range(1, 31), LOST),
    (refuse_by_a_log_that_may_be_old, ExpectationsWorld, range(14, 74), REFUSED),
    (count_what_is_not_committed, LimitsWorld, range(1, 61), CUT_SHORT),
    (ignore_incarnations, ReplicasReturnLate, range(5, 65), LOST),
    (follow_by_name, FencedComeBack, range(29, 89), MIXED),
    (lend_leases_longer_than_a_session, SilentNodes, range(30), LEASE_LEFT),
    (forget_who_was_heard, ControllersMove, range(30), LEASE_LEFT),
    (replace_before_it_is_copied, NodeLost, range(60), LOST),
    (replace_whoever_is_fenced, NodeLost, range(1, 61), REPLACED_SOON),
    (take_the_time_of_an_earlier_absence, NodeLost, range(19, 79), REPLACED_SOON),
    (create_streams_at_once, NamesakesLate, range(1, 61), MIXED),
    (lend_to_unaware_nodes, FencedComeBack, range(1, 61), MIXED),
    (forget_deletions_with_the_controller, ControllersForget, range(7, 67), MIXED),
    (send_again_what_may_be_done, OperationsWorld, range(8, 68), STORED_TWICE),
    (answer_operations_before_the_commit, OperationsWorld, range(34, 94), ACKNOWLEDGED_GONE),
    (forget_what_was_made_and_deleted_at_once, NamesakesOfKilled, range(56, 116), "does not know"),
    (take_high_watermarks_by_name, NamesakesOfKilled, range(30, 90), UNCOMMITTED),
    (take_a_missing_segment_for_a_log_start, LogsLoseTheirBeginning, range(1, 61), CUT_SHORT),
    (take_appends_of_older_ingests, IngestsLate, range(13, 73), STORED_TWICE),
    (await_the_high_watermark_alone, RepetitionsWait, range(5, 65), ACKNOWLEDGED_GONE),
    (apply_when_nats_has_answered, NatsHangs, range(21, 81), ACTS_LATE),
    (accept_members_that_have_restarted, JoinersLosePower, range(2, 62), LOST),
    (trust_that_leader_epochs_match, LeadersForAMoment, range(3, 63), LOST),
    (trust_older_copies, OlderCopiesReturn, range(23, 83), LOST),
    (take_what_deposed_leaders_send, DeposedLeadersSend, range(1, 61), LOST),
    (pass_on_what_came_over_a_link, PortsWorld, range(4, 44), HEARD_TWICE),
    (call_each_other, PortsWorld, range(147, 187), HEARD_TWICE),
    (keep_what_an_ended_link_wanted, PortsWorld, range(1, 41), "all is not well"),
    (take_what_was_sent_to_others, CopiesComeLate, range(5, 65), STORED_TWICE),
    (take_what_was_sent_to_others, CopiesComeLateOverLinks, range(1, 61), STORED_TWICE),
    (take_links_by_any_token, PortsWorld, range(23, 63), "a stranger is taken for"),
    (commit_older_epochs_by_counting, LeadersDie, range(100), OVERWRITTEN),
    (forget_the_vote_at_restart, VotersRestart, range(3, 43), VOTES_TWICE),
    (answer_before_saving_the_epoch, QuorumWorld, range(30, 200), VOTES_TWICE),
    (keep_what_was_not_written_among_what_waits, QuorumWorld, range(25, 85), NOT_IN_THE_LOG),
    (found_a_quorum_by_a_majority, QuorumWorld, range(109, 169), OVERWRITTEN),
    (count_votes_of_any_folder, QuorumWorld, range(276, 336), OVERWRITTEN),
    (change_two_voters_at_once, VotersChangeAtOnce, range(7, 200), OVERWRITTEN),
    (judge_by_the_committed_voters, VotersChangeAtOnce, range(19, 200), OVERWRITTEN),
    (replace_a_folder_in_one_step, FoldersReturn, range(100), OVERWRITTEN),
    (believe_whoever_has_the_time_of_append, AskingWorld, range(200), ASKED),
    (write_ids_of_another_leader, AskingWorld, range(20, 200), TWICE),
    (forget_the_ids_of_batches, AskingWorld, range(10, 200), TWICE),
    (owe_no_erasure, AskingWorld, range(8, 200), "is not erased, which the rollup"),
    (open_without_ids_that_cannot_be_read, AskingWorld, range(39, 200), TWICE),
    (
        count_what_is_not_committed_as_stored,
        AskingWorld,
        range(3, 100),
        "was acknowledged, and is not",
    ),
    (acknowledge_fast_batches_when_appended, FastWorld, range(2, 100), "was acknowledged, and is"),
    (go_on_over_gaps, FastWorld, range(100), "wants no gap"),
    (store_what_follows_a_refused_one, FastWorld, range(3, 100), "wants no gap"),
    (
        await_the_high_watermark_alone_in_batches,
        FastRepetitionsWait,
        range(33, 93),
        "of a fast batch is acknowledged, wrongly|is told of",
    ),
    (fire_before_the_log_is_read, FiringLeadersEnd, range(6, 66), FIRED),
    (forget_what_others_have_fired, FiringLeadersEnd, range(15, 75), FIRED),
    (fire_what_was_there_when_it_was_looked_at, FiringLeadersEnd, range(9, 69), FIRED),
    (fire_what_may_have_fired, FiredMessagesGo, range(39, 99), FIRED),
    (owe_nothing_of_former_leaders, FiredMessagesGo, range(8, 68), "go, is not erased"),
    (take_what_is_not_found_for_erased, FiringLeadersEnd, range(60), "acknowledged as erased"),
    (
        take_erasures_in_the_log_for_committed,
        RollupsAreRepeated,
        range(9, 109),
        "is acknowledged, and the message",
    ),
    (forget_the_places_of_sources, FedLeadersEnd, range(1, 61), TAKEN_AGAIN),
    (find_places_by_what_is_committed, FedLeadersEnd, range(5, 65), TAKEN_AGAIN),
    (remember_places_of_earlier_leaderships, FedLeadersEnd, range(1, 61), TAKEN_AGAIN),
    (let_retention_take_the_only_places, FedLeadersEnd, range(4, 64), TAKEN_AGAIN),
    (hold_up_retention, FedLeadersEnd, range(5, 65), "all is not well: s-0"),
    (
        take_another_stream_for_its_namesake,
        SourcesWorld,
        range(23, 83),
        "all is not well: .* is missing in",
    ),
    (name_no_gaps, FedLeadersEnd, range(1, 61), "and nothing names"),
    (leave_the_gaps_of_former_leaders, GapsAreCut, range(1, 61), "and nothing names"),
    (take_what_is_not_committed, FedLeadersEnd, range(60), "is not what is committed"),
    (purge_without_the_places, FedLeadersEnd, range(3, 63), UNPURGED),
    (acknowledge_purges_that_do_nothing, FeedsRestart, range(1, 61), UNPURGED),
    (coordinate_producers_of_any_epoch, ZombiesReturn, range(60), ENDED_WRONGLY),
    (send_no_markers_of_the_coordinator_before, CoordinatorsEnd, range(60), "all is not well"),
    (complete_when_one_partition_knows, CoordinatorsEnd, range(1, 61), "is torn: committed in"),
    (answer_before_it_is_committed, CoordinatorsEnd, range(60), ENDED_WRONGLY),
    (
        be_stable_up_to_markers_that_are_not_committed,
        TransactionsWorld,
        range(5, 65),
        "the last stable offset of",
    ),
    (
        forget_what_a_cut_marker_had_ended,
        MarkersAreCut,
        range(4, 64),
        "the last stable offset of",
    ),
    (count_offsets_of_open_transactions, TransactionsWorld, range(1, 61), "has made"),
    (take_batches_that_are_there, TransactionsWorld, range(12, 72), STORED_TWICE),
    (
        commit_for_members_of_any_epoch,
        ConsumerGroupsWorld,
        range(11, 71),
        "is committed at .* a member",
    ),
    (commit_for_whoever_asks, ConsumerGroupsWorld, range(11, 71), "is committed at .* a member"),
    (give_what_others_still_have, ConsumerGroupsWorld, range(60), "belong to"),
    (begin_no_sessions_with_another_coordinator, GroupCoordinatorsEnd, range(60), "not well"),
    (answer_before_it_is_committed, GroupCoordinatorsEnd, range(37, 97), "and is not there"),
    (
        take_acknowledgements_of_former_owners,
        ShareGroupsWorld,
        range(60),
        "acknowledged (again|by)",
    ),
    (keep_no_deliveries, ShareLeadersEnd, range(2, 62), "both for the"),
    (confirm_before_it_is_saved, ShareLeadersEnd, range(2, 62), "is delivered (again )?to"),
    (save_for_any_leader, ShareLeadersLate, range(44, 104), "both for the|is delivered again"),
]
"""The mistake, the stories in which it must show, and how.

A case begins with the shortest story that shows it in today's code, for others cost time and say
nothing. A change of the code makes other stories of the same seeds; then one that follows shows it, and
``shortest_stories`` finds where the case may better begin.
"""


@pytest.mark.parametrize(
    ("plant", "world", "seeds", "shows"), CASES, ids=[case[0].__name__ for case in CASES]
)
def test_a_planted_mistake_is_caught(
    plant: Plant, world: MakeTimed, seeds: range, shows: str, player: Player
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        caught, ending = _first_caught(player, world, seeds, shows)
    let_go()  # a mistake may remember something of its story
    assert not player.ending(world, caught, until_us=ending.time_us).problem


def _first_caught(player: Player, world: MakeTimed, seeds: range, shows: str) -> tuple[int, Ending]:
    problems: list[str] = []
    for seed in seeds:
        ending = player.ending(world, seed)
        if re.match(f"seed {seed}: Violation: .*({shows})", ending.problem):
            return seed, ending
        problems += ending.problem.splitlines()[:1]
    pytest.fail(f"nobody noticed in {len(seeds)} stories, or something else: {problems}")
