"""Access rules: added and removed, kept over snapshots, never too many."""

import json
from uuid import UUID

import pytest

from streamlog.acl.filters import NameMatch, RuleFilter
from streamlog.acl.rules import Rule
from streamlog.errors import InvalidRequest
from streamlog.metadata.commands import (
    AddAccessRules,
    Command,
    RemoveAccessRules,
    decode_command,
    encode_command,
)
from streamlog.metadata.controller import Decision, clients, decide
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.snapshot import decode_snapshot, encode_snapshot


def rule(name: str, **more: object) -> Rule:
    fields = {"permission": "allow", "principal": "User:a", "operation": "read"}
    return Rule.of(**{**fields, "resource_type": "topic", "name": name, **more})


def decided(image: MetadataImage, command: Command) -> Decision:
    command = decode_command(encode_command(command))
    return decide(image, command, now_ms=0, new_id=UUID(int=1), live=set())


def after(image: MetadataImage, command: Command) -> MetadataImage:
    records = decided(image, command).records
    return image.apply_all(records, offset=image.offset, epoch=1)


def test_rules_come_and_go() -> None:
    image = after(MetadataImage("c"), AddAccessRules(rules=(rule("x"), rule("y"), rule("x"))))
    assert set(image.rules) == {rule("x"), rule("y")}
    assert image.offset == 2
    same = after(image, AddAccessRules(rules=(rule("y"),)))
    assert same is image
    gone = RemoveAccessRules(filters=(RuleFilter(name="x"), RuleFilter(name="z")))
    result = decided(image, gone).result
    assert result == {"removed": [[json.loads(rule("x").model_dump_json())], []]}
    assert set(after(image, gone).rules) == {rule("y")}


def test_what_two_filters_match_goes_once() -> None:
    image = after(MetadataImage("c"), AddAccessRules(rules=(rule("x"),)))
    command = RemoveAccessRules(filters=(RuleFilter(), RuleFilter(name="x")))
    assert len(decided(image, command).records) == 1
    assert [len(it) for it in decided(image, command).result["removed"]] == [1, 1]


def test_a_filter_that_matches_a_name_needs_one() -> None:
    with pytest.raises(InvalidRequest, match="needs one"):
        decided(
            MetadataImage("c"), RemoveAccessRules(filters=(RuleFilter(name_match=NameMatch.MATCH),))
        )


def test_they_are_in_snapshots() -> None:
    rules = (rule("x", pattern_type="prefixed"), rule("y", host="::1"), rule("*", operation="all"))
    image = after(MetadataImage("c"), AddAccessRules(rules=rules))
    restored = decode_snapshot(encode_snapshot(image), "here")
    assert restored == image
    assert set(restored.rules) == set(rules)
    assert (
        after(restored, RemoveAccessRules(filters=(RuleFilter(),))).rules
        == MetadataImage("c").rules
    )


def test_there_are_never_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "ACCESS_RULES_MAX", 2)
    image = after(MetadataImage("c"), AddAccessRules(rules=(rule("x"),)))
    with pytest.raises(InvalidRequest, match="use prefixes"):
        after(image, AddAccessRules(rules=(rule("y"), rule("z"))))
    image = after(image, AddAccessRules(rules=(rule("y"), rule("x"))))
    assert len(image.rules) == 2


def test_what_is_no_rule_is_refused() -> None:
    good = json.loads(encode_command(AddAccessRules(rules=(rule("x"),))))
    for field, value in (("host", "h"), ("operation", "dance"), ("principal", "a"), ("more", 1)):
        good["rules"][0] |= {field: value}
        with pytest.raises(InvalidRequest):
            decode_command(json.dumps(good).encode())
