from streamlog.partition.storage.sync_stalls import STEP_MS, SyncStalls


def sync(stalls: SyncStalls, began_ms: int, took_ms: int) -> None:
    stalls.ended(stalls.began(began_ms), began_ms + took_ms)


def test_a_disk_that_owes_nothing_does_not_stall() -> None:
    assert SyncStalls().stall_ms(1_000) == SyncStalls().oldest_ms(1_000) == 0


def test_a_sync_that_takes_longer_than_any_before_is_a_stall_since_it_began() -> None:
    stalls = SyncStalls()
    for number in range(100):
        sync(stalls, 100 * number, 20)
    stalls.began(20_000)
    assert stalls.stall_ms(20_020) == 0
    assert stalls.stall_ms(20_021) == 21
    assert stalls.oldest_ms(20_020) == 20


def test_the_oldest_sync_counts() -> None:
    stalls = SyncStalls()
    first = stalls.began(0)
    second = stalls.began(10)
    assert stalls.stall_ms(30) == 30
    stalls.ended(first, 30)
    assert stalls.oldest_ms(30) == 20
    stalls.ended(second, 30)
    assert stalls.oldest_ms(30) == 0


def test_a_disk_that_hung_once_is_not_slow() -> None:
    stalls = SyncStalls()
    for number in range(300):
        sync(stalls, 100 * number, 5)
    sync(stalls, 50_000, 10_000)
    stalls.began(60_000)
    assert stalls.stall_ms(60_000 + STEP_MS) == STEP_MS


def test_a_slow_disk_is_known_soon() -> None:
    stalls = SyncStalls()
    for number in range(10):
        sync(stalls, 1_000 * number, 500)
    stalls.began(20_000)
    assert stalls.stall_ms(20_500) == 0
