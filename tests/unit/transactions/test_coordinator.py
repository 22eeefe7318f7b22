import pytest

from streamlog.config import TransactionsSection
from streamlog.coordination.effects import NONE
from streamlog.transactions.coordinator import COMPLETION_MS, HELD_MS, RETRY_MS
from streamlog.transactions.requests import (
    NO_PRODUCER_EPOCH,
    EndRequest,
    GivenProducer,
    InitRequest,
    TakeProducerId,
)
from streamlog.transactions.transaction import (
    EPOCH_MAX,
    PartitionId,
    ProducerEpoch,
    Transaction,
    TransactionState,
)
from streamlog.wire.error_codes import ErrorCode
from tests.group_world import Token
from tests.transaction_world import ID, WALL_MS, TransactionWorld, add_request

State = TransactionState
FENCED, CONCURRENT = ErrorCode.producer_fenced, ErrorCode.concurrent_transactions


@pytest.fixture
def world() -> TransactionWorld:
    return TransactionWorld()


def begun(world: TransactionWorld, *numbers: int, version: int = 2) -> ProducerEpoch:
    """A producer with an open transaction."""
    producer = world.initialised()
    assert world.add(producer, *(numbers or (0,)), version=version).result is NONE
    return producer


def at_epoch(world: TransactionWorld, epoch: int) -> ProducerEpoch:
    """A producer that has come so far."""
    first = world.initialised()
    entry = world.coordinator._entries[ID]
    entry.kept = world.kept._replace(producer_epoch=epoch)
    return ProducerEpoch(first.producer_id, epoch)


# Producers


def test_a_new_id_begins_in_epoch_0_and_each_producer_fences_the_one_before(
    world: TransactionWorld,
) -> None:
    first = world.initialised()
    assert first == (100, 0)
    assert world.initialised() == (100, 1)
    assert world.add(first, 0).result is FENCED
    assert world.error(world.end(first, commit=True)) is FENCED
    assert world.error(world.init(first)) is FENCED


def test_a_producer_that_goes_on_is_given_its_next_epoch_once(world: TransactionWorld) -> None:
    first = world.initialised()
    second = world.initialised(first)
    assert second == (100, 1)
    assert world.initialised(first) == second  # the answer was lost
    world.crash()
    assert world.initialised(first) == second
    assert world.add(second, 0).result is NONE
    assert world.error(world.init(first)) is FENCED  # it has used the second


def test_whoever_may_ask_again_may_not_after_another_producer(world: TransactionWorld) -> None:
    first = world.initialised()
    world.initialised(first)
    world.initialised()
    assert world.error(world.init(first)) is FENCED


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_time_outs_that_are_not_allowed(world: TransactionWorld, timeout_ms: int) -> None:
    assert world.error(world.init(timeout_ms=timeout_ms)) is ErrorCode.invalid_transaction_timeout


def test_no_more_ids_than_are_allowed() -> None:
    world = TransactionWorld(TransactionsSection(ids_per_partition_max=1))
    world.initialised()
    assert world.error(world.init(name="another")) is ErrorCode.policy_violation
    assert world.initialised() == (100, 1)


def test_without_a_producer_id_the_id_is_not_known_either(world: TransactionWorld) -> None:
    world.no_producer_id = ErrorCode.coordinator_not_available
    assert world.error(world.init()) is ErrorCode.coordinator_not_available
    assert not list(world.coordinator.transactions())
    world.no_producer_id = None
    assert world.initialised() == (100, 0)


def test_an_id_that_was_given_no_producer_id_takes_no_room() -> None:
    world = TransactionWorld(TransactionsSection(ids_per_partition_max=1))
    world.no_producer_id = ErrorCode.coordinator_not_available
    assert world.error(world.init(name="another")) is ErrorCode.coordinator_not_available
    world.no_producer_id = None
    assert world.initialised() == (100, 0)


def test_what_could_not_be_written_is_not_so(world: TransactionWorld) -> None:
    world.refuse = ErrorCode.coordinator_not_available
    assert world.error(world.init()) is ErrorCode.coordinator_not_available
    assert not list(world.coordinator.transactions())
    world.refuse = None
    producer = begun(world)
    world.refuse = ErrorCode.coordinator_not_available
    assert world.error(world.end(producer, commit=True)) is ErrorCode.coordinator_not_available
    assert world.kept.state is State.ONGOING
    world.refuse = None
    assert world.error(world.end(producer, commit=True)) is NONE


def logged(world: TransactionWorld) -> Transaction:
    return dict(world.replayed().built())[ID]


# A transaction's way


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_takes_the_producer_to_its_next_epoch(world: TransactionWorld, commit: bool) -> None:
    producer = begun(world, 0, 1)
    given: GivenProducer = world.end(producer, commit=commit).result
    assert given == (NONE, (producer.producer_id, 1))
    (sent,) = world.markers
    assert sent == (ID, given.producer, commit, {("t", 0), ("t", 1)}, 2)
    assert world.error(world.init(given.producer)) is CONCURRENT
    world.marked(sent, ("t", 0))
    assert world.kept.state.is_prepared
    world.marked(sent, ("t", 1))
    assert world.kept.state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
    assert world.add(producer, 2).result is FENCED
    assert world.add(given.producer, 2).result is NONE
    assert world.kept.partitions == {("t", 2)}


def test_before_version_2_the_epoch_stays(world: TransactionWorld) -> None:
    producer = begun(world, version=0)
    assert world.end(producer, commit=True, version=0).result == (NONE, producer)
    assert world.error(world.end(producer, commit=True, version=0)) is CONCURRENT
    assert world.markers[0].producer == producer
    world.mark()
    assert world.end(producer, commit=True, version=0).result == (NONE, producer)
    error = world.error(world.end(producer, commit=False, version=0))
    assert error is ErrorCode.invalid_txn_state
    assert world.add(producer, 1, version=0).result is NONE


def test_an_end_that_is_asked_for_again(world: TransactionWorld) -> None:
    producer = begun(world)
    given: GivenProducer = world.end(producer, commit=True).result
    assert world.error(world.end(producer, commit=True)) is CONCURRENT
    assert world.error(world.end(producer, commit=False)) is ErrorCode.invalid_txn_state
    world.mark()
    assert world.end(producer, commit=True).result == given
    assert world.error(world.end(producer, commit=False)) is ErrorCode.invalid_txn_state
    world.wait(COMPLETION_MS)
    world.crash()
    assert world.end(producer, commit=True).result == given
    assert world.add(given.producer, 0).result is NONE
    assert world.error(world.end(producer, commit=True)) is FENCED


def test_an_abort_of_nothing_still_shuts_out_what_comes_late(world: TransactionWorld) -> None:
    producer = world.initialised()
    given: GivenProducer = world.end(producer, commit=False).result
    assert given == (NONE, (100, 1))
    assert world.end(producer, commit=False).result == given
    assert world.add(producer, 0).result is FENCED
    assert not world.markers
    assert world.end(given.producer, commit=False).result == (NONE, (100, 2))


def test_there_is_nothing_to_commit(world: TransactionWorld) -> None:
    producer = world.initialised()
    for version in (0, 2):
        error = world.error(world.end(producer, commit=True, version=version))
        assert error is ErrorCode.invalid_txn_state


def test_an_end_of_the_next_transaction_waits_for_the_one_before(world: TransactionWorld) -> None:
    producer = begun(world)
    given: GivenProducer = world.end(producer, commit=True).result
    assert world.error(world.end(given.producer, commit=False)) is CONCURRENT
    world.mark()
    assert world.end(given.producer, commit=False).result == (NONE, (100, 2))


def test_one_change_at_a_time() -> None:
    world = TransactionWorld(commits=False)
    asked = world.init()
    assert world.error(world.init()) is CONCURRENT
    world.commit_log()
    producer = asked.result.producer
    adding = [world.add(producer, number) for number in (0, 1, 0, 2)]
    assert world.error(world.end(producer, commit=True)) is CONCURRENT
    for count, partitions in ((1, {0}), (3, {0, 1}), (4, {0, 1, 2})):
        world.commit_log()
        assert [it.results for it in adding] == [[NONE]] * count + [[]] * (4 - count)
        assert world.kept.partitions == {("t", number) for number in partitions}
    assert world.add(producer, 0).result is NONE  # nothing to be written


def test_partitions_of_the_next_transaction_wait_for_the_markers_of_the_one_before(
    world: TransactionWorld,
) -> None:
    producer = begun(world, version=0)
    world.end(producer, commit=True, version=0)
    adding = world.add(producer, 7, version=0)
    world.wait(HELD_MS - 1)
    assert not adding.results
    world.mark()
    assert adding.result is NONE
    assert world.kept.partitions == {("t", 7)}
    assert world.kept.start_ms == world.now.wall_ms


def test_partitions_do_not_wait_for_ever(world: TransactionWorld) -> None:
    producer = begun(world, version=0)
    world.end(producer, commit=True, version=0)
    first = world.add(producer, 7, version=0)
    world.wait(HELD_MS // 2)
    second = world.add(producer, 8, version=0)
    world.wait(HELD_MS // 2)
    assert first.result is CONCURRENT
    assert not second.results
    world.wait(HELD_MS // 2)
    assert second.result is CONCURRENT
    world.mark()
    assert world.kept.state is State.COMPLETE_COMMIT


def test_a_zombie_that_waits_is_fenced_by_who_has_come_meanwhile() -> None:
    world = TransactionWorld(commits=False)
    asked = world.init()
    world.commit_log()
    producer = asked.result.producer
    initialising = world.init(producer)
    zombie = world.add(producer, 0)
    world.commit_log()
    assert initialising.result.error is NONE
    assert zombie.result is FENCED


def test_who_waits_is_told_of_another_coordinator(world: TransactionWorld) -> None:
    producer = begun(world, version=0)
    world.end(producer, commit=True, version=0)
    adding = world.add(producer, 7, version=0)
    world.carry_out(world.coordinator.close())
    assert adding.result is ErrorCode.not_coordinator


def test_ids_and_producers_that_are_not_known(world: TransactionWorld) -> None:
    unknown = ErrorCode.invalid_producer_id_mapping
    stranger = ProducerEpoch(7, 0)
    assert world.add(stranger, 0).result is unknown
    assert world.error(world.end(stranger, commit=True)) is unknown
    world.initialised()
    assert world.add(stranger, 0).result is unknown
    assert world.error(world.end(stranger, commit=True)) is unknown
    assert world.error(world.init(stranger)) is FENCED


def test_no_more_partitions_than_are_allowed() -> None:
    world = TransactionWorld(TransactionsSection(partitions_per_transaction_max=2))
    producer = begun(world, 0, 1)
    assert world.add(producer, 2).result is ErrorCode.policy_violation
    assert world.add(producer, 1).result is NONE


# Verification


def test_partitions_of_the_open_transaction_are_verified(world: TransactionWorld) -> None:
    producer = begun(world, 0, version=0)
    verified = world.coordinator.verify(add_request(producer, 0, 1))
    assert verified == {("t", 0): NONE, ("t", 1): ErrorCode.transaction_abortable}
    stale = ProducerEpoch(producer.producer_id, -1)
    assert world.coordinator.verify(add_request(stale, 0)) == {("t", 0): FENCED}
    world.end(producer, commit=True, version=0)
    assert world.coordinator.verify(add_request(producer, 0)) == {("t", 0): CONCURRENT}
    world.mark()
    verified = world.coordinator.verify(add_request(producer, 0))
    assert verified == {("t", 0): ErrorCode.transaction_abortable}


# Crashes of producers, time-outs


def test_the_next_producer_aborts_what_is_open(world: TransactionWorld) -> None:
    zombie = begun(world)
    assert world.error(world.init()) is CONCURRENT
    assert world.error(world.init()) is CONCURRENT  # markers are on their way
    assert not world.markers[0].commit
    assert world.error(world.end(zombie, commit=True)) is FENCED
    world.mark()
    assert world.error(world.end(zombie, commit=False)) is FENCED
    assert world.initialised() == (100, 2)
    assert world.coordinator.ended == {"fence": 1}


def test_a_transaction_that_is_open_for_too_long_is_aborted(world: TransactionWorld) -> None:
    producer = begun(world)
    world.wait(59_999)
    assert world.add(producer, 1).result is NONE
    world.wait(1)
    assert world.kept.state is State.PREPARE_ABORT
    assert world.error(world.end(producer, commit=True)) is ErrorCode.invalid_txn_state
    world.mark()
    assert world.add(producer, 1).result is FENCED
    # Its producer may find out by its abort, and go on.
    assert world.end(producer, commit=False).result == (NONE, (100, 1))
    assert world.coordinator.ended == {"timeout": 1}


def test_a_producer_of_before_version_2_is_fenced_by_its_time_out(world: TransactionWorld) -> None:
    producer = begun(world, version=0)
    world.wait(60_000)
    world.mark()
    assert world.error(world.end(producer, commit=True, version=0)) is FENCED
    assert world.error(world.end(producer, commit=False, version=0)) is FENCED


def test_the_time_is_over_at_the_next_coordinator_too(world: TransactionWorld) -> None:
    begun(world)
    world.wait(40_000)
    world.crash()
    world.wait(19_999)
    assert world.kept.state is State.ONGOING
    world.wait(1)
    assert world.kept.state is State.PREPARE_ABORT


def test_a_time_out_waits_for_a_change_on_its_way_and_is_tried_again() -> None:
    world = TransactionWorld()
    producer = begun(world)
    world.commits = False
    adding = world.add(producer, 1)
    world.wait(61_000)
    world.commit_log()
    assert adding.result is NONE
    world.refuse = ErrorCode.coordinator_not_available
    world.wait(1_000)
    assert world.kept.state is State.ONGOING
    world.refuse, world.commits = None, True
    world.wait(200)
    assert world.kept.state is State.PREPARE_ABORT


def test_time_that_nobody_could_be_heard_does_not_count(world: TransactionWorld) -> None:
    begun(world)
    world.coordinator.resume(10_000, world.now)
    world.wait(69_999)
    assert world.kept.state is State.ONGOING
    world.wait(1)
    assert world.kept.state is State.PREPARE_ABORT


def test_an_id_that_is_not_used_is_forgotten() -> None:
    world = TransactionWorld(TransactionsSection(id_expiration_ms=5_000))
    producer = world.initialised()
    world.wait(4_999)
    assert world.add(producer, 0).result is NONE
    world.wait(50_000)
    assert world.kept.state is State.ONGOING
    world.end(producer, commit=True)
    world.wait(50_000)
    assert world.kept.state is State.PREPARE_COMMIT
    world.mark()
    world.wait(5_000)
    assert world.coordinator.find(ID) is None
    assert world.log[-1].value is None
    assert world.initialised() == (101, 0)


# Crashes of coordinators


def test_what_is_prepared_is_completed_by_the_next_coordinator(world: TransactionWorld) -> None:
    producer = begun(world, 0, 1)
    given: GivenProducer = world.end(producer, commit=True).result
    world.marked(world.markers[0], ("t", 0))
    world.crash()
    (sent,) = world.markers
    assert sent == (ID, given.producer, True, {("t", 0), ("t", 1)}, 2)
    world.mark()
    assert world.kept.state is State.COMPLETE_COMMIT


def test_markers_of_another_transaction_count_for_nothing(world: TransactionWorld) -> None:
    producer = begun(world)
    given: GivenProducer = world.end(producer, commit=True).result
    (old,) = world.markers
    world.mark()
    world.add(given.producer, 0)
    world.end(given.producer, commit=False)
    world.marked(old, ("t", 0))
    assert world.kept.state is State.PREPARE_ABORT


def test_a_completion_that_could_not_be_written_is_written_later(world: TransactionWorld) -> None:
    producer = begun(world)
    world.end(producer, commit=True)
    world.refuse = ErrorCode.coordinator_not_available
    world.mark()
    for _ in range(3):
        assert logged(world).state is State.PREPARE_COMMIT
        world.wait(RETRY_MS)
    world.refuse = None
    world.wait(RETRY_MS)
    assert logged(world).state is world.kept.state is State.COMPLETE_COMMIT


@pytest.mark.parametrize(("waits", "kept"), [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)])
def test_the_next_transaction_begins_whether_or_not_the_log_has_the_completion_of_the_last_one(
    waits: int, kept: int
) -> None:
    """Right after it one record says both; later there are two, of which a crash may leave the first."""
    world = TransactionWorld()
    producer = begun(world, 0, version=0)
    world.end(producer, commit=True, version=0)
    world.commits = False
    world.mark()
    world.wait(waits * COMPLETION_MS)
    adding = world.add(producer, 7, version=0)
    assert len(world.writing) == 1 + waits
    assert not adding.results
    world.crash(kept)
    partitions: set[PartitionId] = set()
    if kept == 0:
        partitions = {("t", 0)}
    elif kept == 1 + waits:
        partitions = {("t", 7)}
    assert world.kept.partitions == partitions
    assert bool(world.markers) == (kept == 0), "only what may not be complete is told again"


@pytest.mark.parametrize("kept", [0, 1])
def test_a_crash_leaves_the_state_before_or_the_one_after(kept: int) -> None:
    world = TransactionWorld()
    producer = begun(world)
    world.commits = False
    asked = world.end(producer, commit=True)
    world.crash(kept)
    world.commits = True
    assert not asked.is_answered
    assert world.kept.state is (State.PREPARE_COMMIT if kept else State.ONGOING)
    world.mark()
    again = world.end(producer, commit=True)
    world.mark()
    assert again.result == (NONE, (100, 1))
    assert world.kept.state is State.COMPLETE_COMMIT


def test_a_completion_is_written_once(world: TransactionWorld) -> None:
    producer = begun(world)
    world.end(producer, commit=True)
    world.mark()
    count = len(world.log)
    world.wait(COMPLETION_MS + 10 * RETRY_MS)
    assert len(world.log) == count + 1


def test_nothing_comes_of_what_is_written_after_the_end_of_the_leadership() -> None:
    world = TransactionWorld(commits=False)
    asked = world.init()
    (write,) = world.writing
    world.carry_out(world.coordinator.close())
    world.carry_out(write.then(NONE, world.now))
    assert world.error(asked) is ErrorCode.not_coordinator
    assert world.coordinator.next_ms is None


# Epochs that are used up


def test_a_producer_whose_epochs_are_used_up_has_another_id(world: TransactionWorld) -> None:
    last = at_epoch(world, EPOCH_MAX - 1)
    assert world.add(last, 0).result is NONE
    given: GivenProducer = world.end(last, commit=True).result
    assert given == GivenProducer(NONE, ProducerEpoch(101, 0))
    assert world.markers[0].producer == (100, EPOCH_MAX)
    assert world.error(world.end(last, commit=True)) is CONCURRENT
    world.mark()
    assert world.end(last, commit=True).result == given
    world.wait(COMPLETION_MS)
    world.crash()
    assert world.end(last, commit=True).result == given
    assert world.add(last, 0).result is FENCED
    assert world.add(given.producer, 0).result is NONE


def test_initialising_takes_another_id_when_epochs_are_used_up(world: TransactionWorld) -> None:
    last = at_epoch(world, EPOCH_MAX - 1)
    assert world.initialised(last) == (101, 0)
    assert world.initialised(last) == (101, 0)
    assert world.initialised() == (101, 1)
    assert world.error(world.init(last)) is FENCED


def test_no_client_has_the_largest_epoch(world: TransactionWorld) -> None:
    last = at_epoch(world, EPOCH_MAX - 1)
    assert world.add(last, 0, version=0).result is NONE
    assert world.error(world.init()) is CONCURRENT
    world.mark()
    assert world.initialised() == (101, 1)


def test_no_other_id_is_to_be_had(world: TransactionWorld) -> None:
    last = at_epoch(world, EPOCH_MAX - 1)
    world.no_producer_id = ErrorCode.coordinator_not_available
    assert world.error(world.end(last, commit=False)) is ErrorCode.coordinator_not_available
    world.add(last, 0)
    world.wait(61_000)
    assert world.kept.state is State.ONGOING
    world.no_producer_id = None
    world.wait(200)
    assert world.kept.state is State.PREPARE_ABORT


def test_the_next_transaction_has_its_own_partitions_and_time(world: TransactionWorld) -> None:
    producer = begun(world, 0)
    given = world.end(producer, commit=True).result.producer
    stale = ProducerEpoch(producer.producer_id, producer.epoch - 1)
    assert world.coordinator.verify(add_request(stale, 0)) == {("t", 0): FENCED}
    world.mark()
    world.wait(5_000)
    assert world.add(given, 1).result is NONE
    assert (world.kept.partitions, world.kept.start_ms) == ({("t", 1)}, WALL_MS + 5_000)
    world.wait(1_000)
    assert world.add(given, 2).result is NONE
    assert world.kept.partitions == {("t", 1), ("t", 2)}
    assert (world.kept.start_ms, world.kept.update_ms) == (WALL_MS + 5_000, WALL_MS + 6_000)


def test_an_operator_aborts_what_is_open(world: TransactionWorld) -> None:
    def abort(name: str = ID) -> ErrorCode:
        token = Token(f"abort {name}")
        world.carry_out(world.coordinator.abort(name, token, world.now))
        return world.error(token)

    assert abort() is ErrorCode.transactional_id_not_found
    producer = begun(world, 0)
    assert abort() is NONE
    assert (world.kept.state, world.kept.commits) == (State.PREPARE_ABORT, False)
    assert world.error(world.end(producer, commit=True)) is FENCED
    world.mark()
    assert abort() is ErrorCode.invalid_txn_state
    assert world.coordinator.ended["operator"] == 1


def test_one_producer_id_at_a_time(world: TransactionWorld) -> None:
    """While it is on its way, the id is not given to another producer."""
    first, second = Token("first"), Token("second")
    request = InitRequest(ID, 60_000, NO_PRODUCER_EPOCH)
    (take,) = world.coordinator.init_producer(request, first, world.now)
    assert isinstance(take, TakeProducerId)
    world.carry_out(world.coordinator.init_producer(request, second, world.now))
    assert world.error(second) is CONCURRENT
    world.carry_out(take.then(100, world.now))
    assert first.result.producer == (100, 0)
    assert world.initialised() == (100, 1)


def test_a_producer_id_that_comes_after_the_leadership_is_given_to_nobody() -> None:
    world = TransactionWorld()
    asked = Token("init")
    (take,) = world.coordinator.init_producer(
        InitRequest(ID, 60_000, NO_PRODUCER_EPOCH), asked, world.now
    )
    assert isinstance(take, TakeProducerId)
    world.carry_out(world.coordinator.close())
    world.carry_out(take.then(100, world.now))
    assert world.error(asked) is ErrorCode.not_coordinator
    assert not world.log


def test_what_waits_for_another_producer_id_goes_on_without_one(world: TransactionWorld) -> None:
    last = at_epoch(world, EPOCH_MAX - 1)
    assert world.add(last, 0).result is NONE
    ending = Token("end")
    (take,) = world.coordinator.end(EndRequest(ID, last, True, 2), ending, world.now)
    assert isinstance(take, TakeProducerId)
    adding = world.add(last, 1)
    assert not adding.results
    world.carry_out(take.then(ErrorCode.coordinator_not_available, world.now))
    assert world.error(ending) is ErrorCode.coordinator_not_available
    assert adding.result is NONE
    assert world.kept.partitions == {("t", 0), ("t", 1)}


def test_an_id_that_is_being_given_has_nothing_to_abort(world: TransactionWorld) -> None:
    (take,) = world.coordinator.init_producer(
        InitRequest(ID, 60_000, NO_PRODUCER_EPOCH), Token("init"), world.now
    )
    assert isinstance(take, TakeProducerId)
    aborting = Token("abort")
    world.carry_out(world.coordinator.abort(ID, aborting, world.now))
    assert world.error(aborting) is ErrorCode.transactional_id_not_found


def test_a_time_out_comes_after_a_change_that_has_failed() -> None:
    world = TransactionWorld()
    producer = begun(world)
    world.commits = False
    adding = world.add(producer, 1)
    world.wait(61_000)
    (write,) = world.writing
    world.writing.clear()
    world.commits = True
    world.carry_out(write.then(ErrorCode.coordinator_not_available, world.now))
    assert adding.result is ErrorCode.coordinator_not_available
    world.wait(RETRY_MS)
    assert world.kept.state is State.PREPARE_ABORT


def test_an_id_is_forgotten_once_the_log_says_so() -> None:
    world = TransactionWorld(TransactionsSection(id_expiration_ms=5_000))
    world.initialised()
    world.refuse = ErrorCode.coordinator_not_available
    world.wait(10_000)
    assert world.coordinator.find(ID) is not None
    world.refuse = None
    world.wait(RETRY_MS)
    assert world.coordinator.find(ID) is None


def test_a_marker_that_is_told_twice_does_not_end_the_next_transaction(
    world: TransactionWorld,
) -> None:
    """Before version 2 the next one has the same epoch."""
    producer = begun(world, 0, version=0)
    world.end(producer, commit=True, version=0)
    (sent,) = world.markers
    world.mark()
    assert world.add(producer, 0, version=0).result is NONE
    world.marked(sent, ("t", 0))
    assert world.kept.state is State.ONGOING
    world.wait(COMPLETION_MS)
    assert world.kept.state is State.ONGOING


def test_a_completion_is_not_written_after_the_next_producer(world: TransactionWorld) -> None:
    """Its record says as much."""
    producer = begun(world)
    world.end(producer, commit=True)
    world.mark()
    world.initialised()
    count = len(world.log)
    world.wait(2 * COMPLETION_MS)
    assert len(world.log) == count
