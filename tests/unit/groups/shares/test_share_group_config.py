"""Configs of share groups: what they may be, and what holds where they say nothing."""

import pytest

from streamlog.config import GroupsSection
from streamlog.errors import InvalidRequest
from streamlog.groups.shares.share_group_config import (
    GROUP_CONFIGS,
    check_config,
    check_together,
    default_of,
    reset_of,
    settings_of,
)

SETTINGS = GroupsSection()


@pytest.mark.parametrize("name", GROUP_CONFIGS)
def test_the_defaults_may_be_set(name: str) -> None:
    check_config(name, default_of(name, SETTINGS))


def test_a_group_has_its_own_configs_and_the_rest_of_the_node() -> None:
    found = settings_of({"share.delivery.count.limit": "7"}, SETTINGS)
    assert found.delivery_count_limit == 7
    assert found.record_lock_duration_ms == SETTINGS.share_record_lock_duration_ms
    assert found.renew_acknowledge is True


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("share.delivery.count.limit", "1"),
        ("share.delivery.count.limit", "many"),
        ("share.isolation.level", "some"),
        ("share.renew.acknowledge.enable", "True"),
        ("share.auto.offset.reset", "by_duration:P"),
        ("share.auto.offset.reset", "none"),
        ("consumer.session.timeout.ms", "1"),
    ],
)
def test_other_values_are_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match=name):
        check_config(name, text)


def test_heartbeats_are_more_frequent_than_sessions_are_long() -> None:
    with pytest.raises(InvalidRequest, match=r"heartbeat\.interval\.ms < "):
        check_together({"share.heartbeat.interval.ms": "50000"}, SETTINGS)


@pytest.mark.parametrize(
    ("text", "age_ms"),
    [
        ("latest", -1),
        ("earliest", None),
        ("by_duration:PT1H30M", 5_400_000),
        ("by_duration:P1DT0.5S", 86_400_500),
    ],
)
def test_where_a_group_begins(text: str, age_ms: int | None) -> None:
    assert reset_of(text) == age_ms
