"""A node's condition is judged in one place; clocks by what most nodes say."""

from datetime import timedelta

import pytest

from streamlog.metadata.nodes.node_condition import (
    CERTIFICATE,
    CLOCK,
    CLOCK_WRONG_S,
    CONDITIONS,
    DISABLING,
    DISK,
    ENDURABLE,
    HTTP_CERTIFICATE,
    LOST,
    NATS,
    SLOW_NATS,
    Facts,
    agreed_ahead_s,
    disabling,
    endured,
    judge,
    keep_from_leading,
    told,
)


def test_all_is_well() -> None:
    assert judge(Facts()) == []
    assert judge(Facts(certificate_left=timedelta(days=90), clock_ahead_s=0.9)) == []
    assert judge(Facts(nats_answers_s=0.9)) == []


@pytest.mark.parametrize(
    ("facts", "name", "said", "is_disabling"),
    [
        (Facts(disk_full=True), DISK, "its disk is full", True),
        (Facts(certificate_left=timedelta(0)), CERTIFICATE, "has expired", True),
        (Facts(certificate_left=timedelta(days=-9)), CERTIFICATE, "has expired", True),
        (Facts(certificate_left=timedelta(days=1.5)), CERTIFICATE, "in 36 hours: renew", False),
        (Facts(http_certificate_left=timedelta(0)), HTTP_CERTIFICATE, "HTTP has expired", False),
        (Facts(http_certificate_left=timedelta(1)), HTTP_CERTIFICATE, "HTTP expires in", False),
        (Facts(certificate_left=timedelta(days=13)), CERTIFICATE, "in 13 days: renew it so", False),
        (Facts(nats_answers_s=4.04), SLOW_NATS, "NATS answers it after 4.0 s: publishers", False),
        (Facts(gone=["s/0: offset 3"]), LOST, "1 partition has lost records that were", False),
        (Facts(gone=["s/0: offset 3", "s/1"]), LOST, "2 partitions have lost records", False),
        (Facts(clock_ahead_s=600.0, clock_agreed=True), CLOCK, "600.0 s ahead of that of", True),
        (Facts(clock_ahead_s=-600.0, clock_agreed=True), CLOCK, "600.0 s behind that of", True),
        (Facts(clock_ahead_s=600.0), CLOCK, "600.0 s ahead of the controller's", False),
        (Facts(clock_ahead_s=2.0, clock_agreed=True), CLOCK, "2.0 s ahead of that of", False),
    ],
)  # fmt: skip
def test_one_thing_is_wrong(facts: Facts, name: str, said: str, is_disabling: bool) -> None:
    (trouble,) = judge(facts)
    assert (trouble.name, trouble.is_disabling) == (name, is_disabling)
    assert said in trouble.said and trouble.condition is CONDITIONS[name]
    assert disabling([trouble]) == ((name,) if is_disabling else ())


def test_several_are_told_in_a_steady_order() -> None:
    facts = Facts(True, timedelta(0), clock_ahead_s=600.0, clock_agreed=True)
    assert disabling(judge(facts)) == (CERTIFICATE, CLOCK, DISK)
    assert DISABLING.keys() == {CERTIFICATE, CLOCK, DISK}
    assert DISABLING.keys() | ENDURABLE.keys() == CONDITIONS.keys()


@pytest.mark.parametrize(
    ("facts", "is_urgent", "is_told"),
    [
        (Facts(disk_full=True), True, ()),
        (Facts(certificate_left=timedelta(days=1)), True, ()),
        (Facts(certificate_left=timedelta(days=3)), False, ()),
        (Facts(http_certificate_left=timedelta(0)), True, (HTTP_CERTIFICATE,)),
        (Facts(http_certificate_left=timedelta(days=1)), True, ()),
        (Facts(gone=["s/0: offset 3"]), True, (LOST,)),
        (Facts(nats_answers_s=1.1), True, (SLOW_NATS,)),
        (Facts(clock_ahead_s=600.0), False, ()),
    ],
)
def test_what_is_urgent_and_what_other_nodes_are_told(
    facts: Facts, is_urgent: bool, is_told: tuple[str, ...]
) -> None:
    """As in the alerts: a certificate is critical in its last two days."""
    troubles = judge(facts)
    assert [it.is_urgent for it in troubles] == [is_urgent]
    assert endured(troubles) == is_told


def test_what_a_node_leads_on_with() -> None:
    assert not keep_from_leading(()) and not keep_from_leading((HTTP_CERTIFICATE, NATS))
    assert keep_from_leading((HTTP_CERTIFICATE, CLOCK)) and keep_from_leading(("of a later one",))
    assert told(NATS) == ENDURABLE[NATS] and told("of a later one") == "of a later one"


@pytest.mark.parametrize(
    ("told", "nodes", "agreed"),
    [
        ([], 1, None),
        ([0.0], 1, 0.0),
        ([0.0, 0.1], 2, 0.0),
        ([0.0, 600.0], 2, None),
        ([0.0, 600.0, 0.2], 3, 0.2),
        ([0.0, -600.0, -600.0], 3, -600.0),
        ([0.0], 3, None),
        ([0.0, 600.0], 3, None),
        ([0.0, 600.0, -600.0], 3, None),
        ([0.0, 0.1, 600.0, -600.0], 4, None),
        ([0.0, 0.1, 0.2, 600.0, -600.0], 5, 0.1),
    ],
)
def test_most_nodes_say_what_time_it_is(
    told: list[float], nodes: int, agreed: float | None
) -> None:
    """A controller whose own clock is wrong does not make that of all others wrong."""
    assert agreed_ahead_s(told, nodes) == agreed
    assert CLOCK_WRONG_S < 600
