from streamlog.event_ids import event_ids


def test_ids_differ() -> None:
    one, other = event_ids(), event_ids()
    ids = [make() for make in (one, other) for _ in range(1_000)]
    assert len(set(ids)) == 2_000
    assert all(len(it) == 32 and int(it, 16) >= 0 for it in ids)
