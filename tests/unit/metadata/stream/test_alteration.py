"""Some settings changed, the others as they are."""

import pytest

from streamlog.errors import InvalidRequest, InvalidStreamConfig, InvalidSubject
from streamlog.metadata.commands import AlterStream, decode_command, encode_command
from streamlog.metadata.stream.alteration import SettingChange, altered, defaults_of
from streamlog.metadata.stream.stream_config import StreamConfig


def put(setting: str, text: str) -> SettingChange:
    return SettingChange(setting=setting, text=text)


def reset(setting: str) -> SettingChange:
    return SettingChange(setting=setting, operation="reset")


def test_nothing_changed_is_the_same() -> None:
    config = StreamConfig.of(
        name="s", subjects=("a", "b"), replicas=3, min_isr=1, retention_ms=500, sync="os",
        duplicate_window_ms=200, metadata={"k": "v"},
    )  # fmt: skip
    assert altered(config, ()) == config


def test_defaults_go_along_with_what_they_depend_on() -> None:
    config = StreamConfig.of(name="s", replicas=3)
    assert altered(config, [put("replicas", "5")]).min_isr == 3
    assert altered(config, [put("retention_ms", "1000")]).duplicate_window_ms == 1_000
    shorter = altered(config, [put("retention_ms", "1000")])
    assert altered(shorter, [reset("retention_ms")]) == config
    named = config.changed(min_isr=1, duplicate_window_ms=5_000)
    assert altered(named, [put("replicas", "5")]).min_isr == 1
    assert altered(named, [put("retention_ms", "1000")]).duplicate_window_ms == 1_000
    assert altered(named, [put("retention_ms", "9000")]).duplicate_window_ms == 5_000


def test_members_of_lists_come_and_go() -> None:
    config = StreamConfig.of(name="s", subjects=("a", "b"))

    def subjects(operation: str, text: str) -> tuple[str, ...]:
        change = SettingChange.model_validate(
            {"setting": "subjects", "operation": operation, "text": text}
        )
        return altered(config, [change]).subjects

    assert subjects("append", "b, c") == ("a", "b", "c")
    assert subjects("subtract", "a,x") == ("b",)
    with pytest.raises(InvalidStreamConfig, match="nothing would be left"):
        subjects("subtract", "a,b")
    first_reset = [
        reset("subjects"),
        SettingChange(setting="subjects", operation="append", text="c"),
    ]
    assert altered(config, first_reset).subjects == ("a", "b", "c")


@pytest.mark.parametrize(
    "change",
    [
        put("no_such", "1"),
        put("retention_ms", "soon"),
        put("retention_ms", "99"),
        put("partitions", "0"),
        put("partitions", "many"),
        SettingChange(setting="acks", operation="append", text="none"),
        SettingChange(setting="no_such", operation="reset"),
    ],
)
def test_what_cannot_be_is_refused(change: SettingChange) -> None:
    with pytest.raises(InvalidStreamConfig):
        altered(StreamConfig.of(name="s"), [change])


def test_subjects_are_checked() -> None:
    with pytest.raises(InvalidSubject):
        altered(StreamConfig.of(name="s"), [put("subjects", "a..b")])


def test_defaults_are_those_of_a_stream_of_that_size() -> None:
    config = StreamConfig.of(
        name="s", partitions=2, replicas=3, min_isr=3, subjects=("x",), retention_ms=700
    )
    defaults = defaults_of(config)
    assert (defaults.partitions, defaults.min_isr, defaults.subjects) == (2, 2, ("s",))
    assert defaults.duplicate_window_ms == 700


def test_it_travels_between_nodes() -> None:
    command = AlterStream(name="s", changes=(put("acks", "none"), reset("sync")))
    assert decode_command(encode_command(command)) == command
    with pytest.raises(InvalidRequest):
        decode_command(encode_command(command).replace(b"reset", b"forget"))


def test_compaction_is_added_to_retention_and_taken_away_again() -> None:
    config = StreamConfig.of(name="s")
    both = altered(
        config, [SettingChange(setting="cleanup_policy", operation="append", text="compact")]
    )
    assert both.cleanup_policy == "compact,delete"
    only = altered(
        both, [SettingChange(setting="cleanup_policy", operation="subtract", text="delete")]
    )
    assert only.cleanup_policy == "compact"
    assert altered(only, [reset("cleanup_policy")]) == config
