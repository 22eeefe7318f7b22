from streamlog.metadata.active_controller import NonceCache

WINDOW_MS = 1_000


def spend(it: NonceCache, nonce: str, *, signed_ms: int, now_ms: int) -> str:
    return it.spend("U", nonce, signed_ms=signed_ms, window_ms=WINDOW_MS, now_ms=now_ms)


def test_each_counts_once() -> None:
    it = NonceCache()
    assert spend(it, "a", signed_ms=0, now_ms=0) == ""
    assert "used" in spend(it, "a", signed_ms=0, now_ms=1)
    assert spend(it, "b", signed_ms=0, now_ms=1) == ""


def test_it_is_remembered_for_as_long_as_it_could_count() -> None:
    """Signed by a clock that is ahead, it counts until twice the window is over."""
    it = NonceCache()
    assert spend(it, "a", signed_ms=1_000, now_ms=0) == ""
    assert "used" in spend(it, "a", signed_ms=1_000, now_ms=2 * WINDOW_MS)
    assert spend(it, "a", signed_ms=3_000, now_ms=2 * WINDOW_MS + 1) == ""


def test_what_was_signed_before_the_office_does_not_count() -> None:
    it = NonceCache()
    assert spend(it, "a", signed_ms=10, now_ms=10) == ""
    it.begin(100)
    for nonce in ("a", "b"):
        assert "sign it again" in spend(it, nonce, signed_ms=99, now_ms=101)
    assert spend(it, "c", signed_ms=100, now_ms=101) == ""
