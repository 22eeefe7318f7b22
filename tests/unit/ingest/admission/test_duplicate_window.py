from streamlog.ingest.admission.duplicate_window import DuplicateWindow

WINDOW_MS = 800


def window(ids_max: int = 100) -> DuplicateWindow:
    return DuplicateWindow(WINDOW_MS, ids_max=ids_max)


def test_an_id_is_known_for_the_window_and_an_eighth_at_most() -> None:
    ids = window()
    ids.add(b"a", 1, now_ms=1000)
    ids.expire(1000 + WINDOW_MS)
    assert ids.find(b"a") == 1
    ids.expire(1000 + WINDOW_MS + WINDOW_MS // 8)
    assert ids.find(b"a") is None
    assert len(ids) == 0


def test_the_youngest_of_a_slot_keeps_the_slot() -> None:
    ids = window()
    ids.add(b"a", 1, now_ms=1000)
    ids.add(b"b", 2, now_ms=1099)
    ids.expire(1099 + WINDOW_MS)
    assert ids.find(b"b") == 2


def test_a_clock_that_goes_back_forgets_nothing() -> None:
    ids = window()
    ids.add(b"a", 1, now_ms=10_000)
    ids.add(b"b", 2, now_ms=1000)
    ids.expire(1000 + 2 * WINDOW_MS)
    assert (ids.find(b"a"), ids.find(b"b")) == (1, 2)


def test_forget_takes_back_what_was_not_stored() -> None:
    ids = window()
    for offset in range(10):
        ids.add(b"%d" % offset, offset, now_ms=1000 + 100 * offset)
    ids.forget(4)
    assert len(ids) == 4
    assert ids.last() == (b"3", 3)
    assert ids.find(b"4") is None
    ids.forget(0)
    assert (len(ids), ids.last()) == (0, None)


def test_full() -> None:
    ids = window(ids_max=2)
    ids.add(b"a", 1, now_ms=1000)
    assert not ids.is_full()
    ids.add(b"b", 2, now_ms=1000)
    assert ids.is_full()
