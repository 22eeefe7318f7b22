"""Every difference to the APIs of a Kafka broker has a reason."""

from compatibility.api_versions.differences import KAFKA, REASONS, Versions, differences
from streamlog.wire.registry import APIS

OURS = {api.key: Versions(api.version_min, api.version_max) for api in APIS.values()}
NAMES = {api.key: api.name for api in APIS.values()}


def test_each_difference_has_a_reason_and_each_reason_a_difference() -> None:
    found = differences(OURS, NAMES)
    assert [it for it in found if not it.reason] == []
    assert {it.key for it in found} == set(REASONS)


def test_names_are_kafkas() -> None:
    assert {key: api.name for key, api in KAFKA.items() if key in NAMES} == {
        key: name for key, name in NAMES.items() if key in KAFKA
    }


def test_what_differs_is_told() -> None:
    same = {key: api.versions for key, api in KAFKA.items()}
    assert differences(same, NAMES) == []
    (less,) = differences({**same, 3: Versions(0, 9)}, NAMES)
    assert (less.name, str(less.kafka), str(less.node)) == ("Metadata", "0 to 13", "0 to 9")
    (none,) = differences({key: it for key, it in same.items() if key != 75}, NAMES)
    assert (none.key, none.node) == (75, None)
    (more,) = differences({**same, 93: Versions(0, 0)}, NAMES)
    assert (more.name, more.kafka, more.reason) == ("93", None, "")
