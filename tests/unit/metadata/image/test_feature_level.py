import json
from uuid import UUID

import pytest

from streamlog.acl.rules import Rule
from streamlog.errors import CorruptData, FeatureLevelUnknown, InvalidRequest
from streamlog.metadata.commands import Heartbeat, decode_command, encode_command
from streamlog.metadata.image import feature_level
from streamlog.metadata.image.feature_level import (
    KNOWN,
    LEVEL_MAX,
    LevelRange,
    check_known,
    check_writable,
    raised,
)
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import (
    AccessRuleAdded,
    FeatureLevelChanged,
    MetadataRecord,
    StreamCreated,
    decode_record,
)
from streamlog.metadata.image.snapshot import decode_snapshot, encode_snapshot
from streamlog.metadata.stream.settings_translation import SETTINGS
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId
from tests.node_registration import started

ONE, TWO = NodeId(1), NodeId(2)
BEAT = Heartbeat(node_id=ONE, node_epoch=4, offset=9)


class FromLevelTwo(MetadataRecord):
    """As a record that a later streamlog has brought."""

    LEVEL = 2


def of(*records: MetadataRecord) -> MetadataImage:
    return MetadataImage("c").apply_all(records, offset=0, epoch=0)


def test_a_cluster_that_nobody_raised_is_of_the_first_level() -> None:
    assert MetadataImage("c").level == 1
    assert list(MetadataImage("c").records()) == []


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A streamlog that knows more levels."""
    monkeypatch.setattr(feature_level, "KNOWN", LevelRange(1, 9))


@pytest.mark.usefixtures("later")
def test_the_level_is_kept_and_comes_first_in_a_snapshot() -> None:
    image = of(*started(MetadataImage("c"), ONE, UUID(int=1)).records, FeatureLevelChanged(level=2))
    again = decode_snapshot(encode_snapshot(image), "x")
    assert again.level == 2
    assert isinstance(next(iter(again.records())), FeatureLevelChanged)


def test_an_unknown_level_is_told_with_the_remedy() -> None:
    with pytest.raises(FeatureLevelUnknown, match=f"level 99.* knows 1 to {LEVEL_MAX}; start the"):
        of(FeatureLevelChanged(level=99))


def test_a_snapshot_of_a_later_streamlog_is_no_damaged_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records of unknown types do not come to be looked at."""
    with monkeypatch.context() as later:
        later.setattr(feature_level, "KNOWN", LevelRange(1, 9))
        data = encode_snapshot(of(FeatureLevelChanged(level=9)))
    with pytest.raises(FeatureLevelUnknown, match="level 9"):
        decode_snapshot(data, "x")


@pytest.mark.usefixtures("later")
def test_a_level_is_not_taken_back() -> None:
    with pytest.raises(CorruptData, match="takes back"):
        of(FeatureLevelChanged(level=2), FeatureLevelChanged(level=1))


def test_it_is_raised_when_all_nodes_know_it() -> None:
    told = {ONE: LevelRange(1, 3), TWO: LevelRange(2, 3)}
    assert raised(1, 3, [ONE, TWO], told) == (FeatureLevelChanged(level=3),)
    assert raised(3, 3, [ONE, TWO], {}) == ()


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({ONE: LevelRange(1, 2)}, "node 2 has not said that it knows feature level 2"),
        (
            {ONE: LevelRange(1, 2), TWO: LevelRange(1, 1)},
            "node 2 knows feature levels 1 to 1, not 2",
        ),
        (
            {ONE: LevelRange(3, 4), TWO: LevelRange(1, 2)},
            "node 1 knows feature levels 3 to 4, not 2",
        ),
    ],
)
def test_else_it_is_refused(told: dict[NodeId, LevelRange], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        raised(1, 2, [ONE, TWO], told)


def test_there_is_no_way_back() -> None:
    with pytest.raises(InvalidRequest, match="cannot go back to 1"):
        raised(2, 1, [], {})


def test_nothing_is_written_before_its_level() -> None:
    with pytest.raises(
        InvalidRequest, match=r"needs feature level 2, .* at 1.*cluster features upgrade"
    ):
        check_writable([FromLevelTwo()], 1)
    check_writable([FromLevelTwo()], 2)


def test_what_is_of_a_snapshot_is_kept_and_not_written_before_its_level() -> None:
    created = StreamCreated(
        stream_id=UUID(int=1), config=StreamConfig.of(name="s", subjects=("s",)), created_ms=0
    )
    restored = created.model_copy(update={"restored_end": 7})
    check_writable([created], 2)
    with pytest.raises(InvalidRequest, match="needs feature level 3"):
        check_writable([restored], 2)
    check_writable([restored], 3)
    assert "restored_end" not in created.model_dump_json(), "older nodes do not know it"
    image = of(restored)
    assert image.stream("s").restored_end == 7
    assert restored in list(image.records())


def test_a_heartbeat_says_which_levels_its_node_knows() -> None:
    assert json.loads(encode_command(BEAT))["levels"] == list(KNOWN)
    beat = BEAT.model_copy(update={"levels": LevelRange(2, 5)})
    assert decode_command(encode_command(beat)) == beat


def test_levels_of_today_are_known() -> None:
    check_known(LEVEL_MAX)
    assert decode_record(b'{"type":"FeatureLevelChanged","version":1,"level":1}') == (
        FeatureLevelChanged(level=1)
    )


def test_no_record_needs_a_level_that_no_node_knows() -> None:
    levels = {kind.LEVEL for kind in MetadataRecord.__subclasses__() if kind is not FromLevelTwo}
    levels |= {row.about.level for row in SETTINGS}
    assert levels == {1, 2, 3}
    assert LEVEL_MAX == 3


def test_rules_about_transactional_ids_need_nodes_that_know_of_them() -> None:
    rule = Rule.of(
        permission="allow",
        principal="User:a",
        operation="write",
        resource_type="transactional_id",
        name="transfers",
    )
    with pytest.raises(InvalidRequest, match="feature level 3"):
        check_writable([AccessRuleAdded(rule=rule)], 2)
    check_writable([AccessRuleAdded(rule=rule)], 3)
