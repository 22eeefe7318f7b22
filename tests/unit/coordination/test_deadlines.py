from hypothesis import given
from hypothesis import strategies as st

from streamlog.coordination.deadlines import Deadlines


def test_each_comes_once_and_in_time() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    deadlines.set("b", 20)
    deadlines.set("a", 30)
    assert list(deadlines.due(9)) == []
    assert list(deadlines.due(25)) == ["b"]
    assert list(deadlines.due(30)) == ["a"]
    assert (list(deadlines.due(99)), len(deadlines), deadlines.next_ms) == ([], 0, None)


def test_all_are_put_off_together() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    deadlines.put_off(5)
    assert list(deadlines.due(14)) == []
    assert list(deadlines.due(15)) == ["a"]


STEPS = st.lists(
    st.tuples(st.sampled_from("sct"), st.integers(0, 3), st.integers(0, 40)), max_size=60
)


@given(STEPS)
def test_as_a_dict_that_is_looked_through(steps: list[tuple[str, int, int]]) -> None:
    deadlines: Deadlines[int] = Deadlines()
    plain: dict[int, int] = {}
    now = 0
    for what, key, ms in steps:
        if what == "s":
            deadlines.set(key, now + ms)
            plain[key] = now + ms
        elif what == "c":
            deadlines.clear(key)
            plain.pop(key, None)
        else:
            now += ms
            due = {it for it, at in plain.items() if at <= now}
            assert set(deadlines.due(now)) == due
            plain = {it: at for it, at in plain.items() if it not in due}
        if plain:
            assert deadlines.next_ms is not None
            assert deadlines.next_ms <= min(plain.values())
        assert len(deadlines) == len(plain)
