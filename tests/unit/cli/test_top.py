"""Rates out of two looks at the same partitions."""

import pytest

from streamlog.cli.top import Activity, Load, Looks, PartitionLook, _headline, loads


def look(time_s: float, **partitions: tuple[int | None, int | None, int | None]) -> Looks:
    """``s_0=(leader, high watermark, size)``."""
    return {
        (name.partition("_")[0], int(name.partition("_")[2])): PartitionLook(
            time_s, leader, end, size, leader is None
        )
        for name, (leader, end, size) in partitions.items()
    }


BEFORE = look(10.0, a_0=(1, 100, 1_000), a_1=(2, 50, 500), b_0=(2, 7, 70))
AFTER = look(12.0, a_0=(1, 300, 5_000), a_1=(None, None, None), b_0=(2, 1007, 20), c_0=(1, 9, 90))


def test_streams_are_sorted_by_rate() -> None:
    b, a, c = loads(BEFORE, AFTER, {it: it[0] for it in AFTER})
    assert b == Load("b", 1, 500.0, 0.0, 20, 0), "retention removed more than came in"
    assert a == Load("a", 2, 100.0, 2_000.0, 5_000, 1), "one leader did not answer"
    assert c == Load("c", 1, 0.0, 0.0, 90, 0), "it is new"


def test_nodes_have_what_they_lead_and_one_that_leads_nothing_is_there() -> None:
    leaders = {it: str(AFTER[it].leader) for it in AFTER if AFTER[it].leader}
    found = {it.name: it for it in loads(BEFORE, AFTER, leaders, ["1", "2", "3"])}
    assert [(it, found[it].partitions, found[it].records_per_s) for it in ("1", "2", "3")] == [
        ("1", 2, 100.0),
        ("2", 1, 500.0),
        ("3", 0, 0.0),
    ]


@pytest.mark.parametrize(
    ("problem", "under", "said"),
    [
        ("", 0, "0 nodes, 1 streams; 5 records/s; 10 B/s; every replica in sync"),
        (
            "groups: x",
            2,
            "0 nodes, 1 streams; 5 records/s; 10 B/s; 2 partitions under-replicated; groups: x",
        ),
    ],
)
def test_the_first_line(problem: str, under: int, said: str) -> None:
    assert _headline(Activity([], [Load("a", 1, 5, 10, 0, under)], [], problem)) == said
