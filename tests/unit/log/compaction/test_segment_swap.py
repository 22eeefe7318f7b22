"""A cleaning is killed, or its power cut, at each of its calls of the disk."""

import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from streamlog.log.compaction.blocking import clean
from streamlog.log.compaction.cleaner import Cleaning, Terms
from streamlog.log.compaction.segment_swap import Swap
from streamlog.log.layout import base_offset_of
from streamlog.log.log import PartitionLog
from streamlog.log.segment.segment import IndexCheck, Segment, scrub
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.log.tools.verify import FolderFinding, verify
from tests.compacted_log import COMPACTED, KeyedLog, sealed, view
from tests.log_folder import FOLDER
from tests.simulation.disk import PowerCut, SimDisk

WRITTEN = 12


def prepared(seed: int = 0) -> KeyedLog:
    """Four segments of three batches; the second cleaning of them is the one that matters."""
    keyed = KeyedLog(SimDisk(seed))
    for number in range(WRITTEN):
        keyed.append(
            (b"k%d" % (number % 5), b"%d" % number * 20),
            (b"gone", None if number % 2 else b"x"),
            epoch=number // 5,
        )
        if number % 3 == 2:
            keyed.log.roll()
    keyed.sync()
    return keyed


def calls_of_a_cleaning() -> int:
    keyed = prepared()
    before = sum(keyed.disk.calls.values())
    keyed.clean()
    return sum(keyed.disk.calls.values()) - before


CALLS = calls_of_a_cleaning()


def test_there_are_calls_to_be_cut() -> None:
    assert 20 < CALLS < 200


@pytest.mark.parametrize("cut", [False, True], ids=["killed", "power cut"])
@pytest.mark.parametrize("calls", range(CALLS))
def test_a_crash_at_any_call_loses_and_resurrects_nothing(calls: int, cut: bool) -> None:
    for seed in range(6 if cut else 1):
        keyed = prepared(seed)
        wanted, end = view(keyed.kept()), keyed.log.log_end_offset
        entries = keyed.log.epochs.entries
        keyed.disk.calls_left = calls
        with pytest.raises(PowerCut):
            keyed.clean()
        if cut:
            keyed.disk.crash()
        else:
            keyed.disk.kill()
        keyed.open(end)
        assert view(keyed.kept()) == wanted
        assert keyed.log.log_end_offset == end
        assert keyed.log.epochs.entries == entries
        assert not keyed.log.recovery.damages
        assert not keyed.log.recovery.lost_synced
        names = keyed.disk.names(str(FOLDER))
        assert not any(name.endswith((".cleaned", ".swap", ".tmp")) for name in names)
        keyed.clean()
        assert view(keyed.kept()) == wanted
        assert len(keyed.kept()) == 6  # of five keys, and the tombstone


@pytest.mark.parametrize("calls", range(0, CALLS, 3))
def test_a_crash_while_the_swap_is_brought_to_its_end(calls: int) -> None:
    for again in range(0, 30, 2):
        keyed = prepared(again)
        wanted, end = view(keyed.kept()), keyed.log.log_end_offset
        keyed.disk.calls_left = calls
        with pytest.raises(PowerCut):
            keyed.clean()
        keyed.disk.crash()
        keyed.disk.calls_left = again
        try:
            keyed.open(end)
        except PowerCut:
            keyed.disk.crash()
            keyed.open(end)
        keyed.disk.calls_left = None
        assert view(keyed.kept()) == wanted
        assert keyed.log.log_end_offset == end


def test_a_swap_of_segments_that_have_changed_is_given_up() -> None:
    keyed = prepared()
    segments = keyed.log.segments.sealed()
    cleaning = Cleaning(keyed.log, segments, Terms(10_000), disk=keyed.disk, pool=keyed.pool)
    cleaning.note_keys()
    swap = cleaning.clean()
    assert swap is not None
    keyed.log.advance_log_start(segments[0].next_offset)
    kept = keyed.kept()
    assert not swap.run()
    assert keyed.kept() == kept
    assert not any("cleaned" in name for name in keyed.disk.names(str(FOLDER)))


def test_segments_stay_while_they_are_swapped() -> None:
    keyed = prepared()
    cleaning = Cleaning(
        keyed.log, keyed.log.segments.sealed(), Terms(10_000), disk=keyed.disk, pool=keyed.pool
    )
    cleaning.note_keys()
    swap = cleaning.clean()
    assert swap is not None
    assert swap.begin()
    end = keyed.log.log_end_offset
    keyed.log.advance_log_start(end - 1)
    assert keyed.log.segments.first.base_offset == 0
    swap.commit()
    swap.replace()
    with keyed.log.read(end - 1, 1_000, end) as piece:
        assert len(piece) > 0
    swap.remove_old()
    with keyed.log.read(end - 1, 1_000, end) as piece:
        assert len(piece) > 0
    swap.rename()
    swap.settle()
    swap.finish()
    keyed.log.advance_log_start(end)
    assert keyed.log.segments.first.base_offset == end
    assert keyed.disk.open_files <= keyed.pool.open_files_max


def reopened() -> tuple[KeyedLog, Swap, list[Segment]]:
    """A cleaning, ready to be swapped in, of segments that no reader has had checked yet."""
    keyed = prepared()
    end = keyed.log.log_end_offset
    keyed.disk.kill()
    keyed.open(end)
    segments = keyed.log.segments.sealed()
    assert not any(it.verified for it in segments)
    cleaning = Cleaning(keyed.log, segments, Terms(10_000), disk=keyed.disk, pool=keyed.pool)
    cleaning.note_keys()
    swap = cleaning.clean()
    assert swap is not None
    return keyed, swap, segments


def verify_all(segments: Iterable[Segment]) -> None:
    for segment in segments:
        segment.verify()


def calls_of(act: Callable[[KeyedLog, Swap, list[Segment]], object]) -> int:
    keyed, swap, segments = reopened()
    before = sum(keyed.disk.calls.values())
    act(keyed, swap, segments)
    return sum(keyed.disk.calls.values()) - before


SWAP_CALLS = calls_of(lambda _, swap, __: swap.run())
VERIFY_CALLS = calls_of(lambda _, __, segments: verify_all(segments))


def check_swapped(keyed: KeyedLog, complaints: pytest.LogCaptureFixture) -> None:
    """The new segment has its own indexes, and nothing is amiss."""
    assert not keyed.log.failed
    new = keyed.log.segments.first
    assert new.next_offset == WRITTEN * 2
    check = IndexCheck(keyed.disk, new.stem_path, new.base_offset, new.interval_bytes)
    file = keyed.disk.open(new.path)
    assert not scrub(file, new.size_bytes, new.next_offset, check, key_problem="")
    file.close()
    assert not check.finish(sealed=True)
    assert not complaints.records
    assert len(keyed.kept()) == 6


@pytest.mark.parametrize("calls", range(SWAP_CALLS))
def test_what_is_checked_while_it_is_replaced_does_no_harm(
    calls: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A reader found the old segments, and has them checked in a worker thread."""
    keyed, swap, segments = reopened()
    keyed.disk.do_meanwhile(calls, lambda: verify_all(segments))
    assert swap.run()
    check_swapped(keyed, caplog)


@pytest.mark.parametrize("calls", range(VERIFY_CALLS))
def test_what_is_replaced_while_it_is_checked_gets_no_indexes(
    calls: int, caplog: pytest.LogCaptureFixture
) -> None:
    keyed, swap, segments = reopened()
    keyed.disk.do_meanwhile(calls, lambda: swap.run() or pytest.fail("the swap was given up"))
    verify_all(segments)
    check_swapped(keyed, caplog)


@pytest.mark.parametrize("calls", range(VERIFY_CALLS))
@pytest.mark.parametrize("removal", ["retention", "purge", "truncation", "close"])
def test_what_is_removed_while_it_is_checked_leaves_no_indexes(
    removal: str, calls: int, caplog: pytest.LogCaptureFixture
) -> None:
    keyed, _, segments = reopened()
    end = keyed.log.log_end_offset

    def remove() -> None:
        match removal:
            case "retention":
                keyed.log.advance_log_start(segments[-1].next_offset)
            case "purge":
                keyed.log.truncate_fully_to(end)
            case "truncation":
                keyed.log.truncate_fully_to(0)
            case "close":
                keyed.log.close()
                for segment in segments:
                    for path in segment.paths:
                        keyed.disk.unlink(path)

    keyed.disk.do_meanwhile(calls, remove)
    verify_all(segments)
    kept = {it.base_offset for it in keyed.log.segments} if removal != "close" else {end}
    names = keyed.disk.names(str(FOLDER))
    indexes = [it for it in names if it.endswith(("index", ".tmp"))]
    assert not [it for it in indexes if base_offset_of(it) not in kept or removal == "truncation"]
    assert not caplog.records


def test_files_are_not_replaced_while_an_index_is_written() -> None:
    keyed, _, segments = reopened()
    segment = segments[0]
    keyed.disk.remove(segment.index_path)
    retired = threading.Event()

    def retire() -> None:
        segment.retire()
        retired.set()

    thread = threading.Thread(target=retire)
    writing = False

    def write_small(path: str, data: bytes) -> None:
        nonlocal writing
        writing = True
        thread.start()
        assert not retired.wait(0.1)

    keyed.disk.write_small = write_small  # type: ignore[method-assign]
    segment.verify()
    thread.join()
    assert writing
    assert retired.is_set()


def test_a_swap_file_that_is_not_whole_is_not_believed() -> None:
    keyed = prepared()
    wanted = keyed.kept()
    keyed.log.close()
    path = f"{FOLDER}/00000000000000000000.log"
    keyed.disk.replace(path + ".swap", keyed.disk.content(path)[:-5])
    keyed.open(keyed.log.recovery_point)
    assert keyed.kept() == wanted
    assert not keyed.disk.has_file(path + ".swap")


def test_a_compacted_folder_passes_verification(tmp_path: Path) -> None:
    disk, pool = OsDisk(), FilePool(OsDisk(), 16)
    log = PartitionLog.open(tmp_path / "p", COMPACTED, disk=disk, files=pool)
    for number in range(300):
        pairs = [(b"k%d" % (number % 40), b"%d" % number)]
        log.append(sealed(log.log_end_offset, pairs, epoch=number // 100), 1_000)
    log.roll()
    ticket = log.begin_sync()
    assert ticket is not None
    ticket.run()
    log.finish_sync(ticket)
    assert clean(log, Terms(5_000), upper_offset=300, disk=disk, pool=pool).removed_bytes > 0
    log.close()
    found = list(verify(tmp_path))
    assert found
    assert not [it for it in found if isinstance(it, FolderFinding)]
