"""What clients may use: set and ended, kept over snapshots, never too many."""

import json
from typing import Final
from uuid import UUID

import pytest

from streamlog.errors import CorruptData, InvalidRequest
from streamlog.metadata.commands import AlterQuota, decode_command, encode_command
from streamlog.metadata.controller import clients, decide
from streamlog.metadata.image import quota as quota_module
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.quota import NO_QUOTA, Quota, QuotaKey
from streamlog.metadata.image.records import QuotaChanged, decode_record, encode_record
from streamlog.metadata.image.snapshot import decode_snapshot, encode_snapshot

IN: Final = "producer_byte_rate"
OUT: Final = "consumer_byte_rate"
REQUESTS: Final = "request_rate"


def after(
    image: MetadataImage, client_id: str | None, values: dict[QuotaKey, float | None]
) -> MetadataImage:
    command = decode_command(encode_command(AlterQuota(client_id=client_id, values=values)))
    decision = decide(image, command, now_ms=0, new_id=UUID(int=1), live=set())
    return image.apply_all(decision.records, offset=image.offset, epoch=1)


def test_limits_are_set_and_ended_one_by_one() -> None:
    image = after(MetadataImage("c"), "a", {IN: 1000, REQUESTS: 0.5})
    assert dict(image.quotas) == {"a": Quota(producer_byte_rate=1000, request_rate=0.5)}
    image = after(image, None, {OUT: 7})
    image = after(image, "a", {IN: None, OUT: 9})
    assert dict(image.quotas) == {
        "a": Quota(consumer_byte_rate=9, request_rate=0.5),
        None: Quota(consumer_byte_rate=7),
    }
    image = after(image, "a", {OUT: None, REQUESTS: None})
    assert dict(image.quotas) == {None: Quota(consumer_byte_rate=7)}
    assert not after(image, None, {OUT: None}).quotas


def test_what_is_so_already_is_not_logged() -> None:
    image = after(MetadataImage("c"), "a", {IN: 1000})
    assert after(image, "a", {IN: 1000}).offset == image.offset
    assert after(image, "b", {IN: None}).offset == image.offset


def test_they_are_in_snapshots() -> None:
    image = after(after(MetadataImage("c"), "a", {IN: 1000.5}), None, {OUT: 7})
    image = after(image, "", {OUT: 8})
    assert decode_snapshot(encode_snapshot(image), "here") == image
    assert len(decode_snapshot(encode_snapshot(image), "here").quotas) == 3


@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan"), 2.0**64, "x"])
def test_what_is_no_rate_is_refused(value: object) -> None:
    command = {"command": "AlterQuota", "client_id": "a", "values": {IN: value}}
    with pytest.raises(InvalidRequest):
        decode_command(json.dumps(command).encode())
    good = encode_record(QuotaChanged(client_id="a", quota=Quota(producer_byte_rate=123)))
    with pytest.raises(CorruptData):
        decode_record(good.replace(b"123.0", json.dumps(value).encode()))


def test_long_names_and_unknown_keys_are_refused() -> None:
    for client_id, key in (("a" * 1_001, IN), ("a", "request_percentage")):
        command = {"command": "AlterQuota", "client_id": client_id, "values": {key: 1}}
        with pytest.raises(InvalidRequest):
            decode_command(json.dumps(command).encode())


def test_there_are_never_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    assert clients.QUOTAS_MAX == quota_module.QUOTAS_MAX  # type: ignore[attr-defined]
    monkeypatch.setattr(clients, "QUOTAS_MAX", 2)
    image = after(after(MetadataImage("c"), "a", {IN: 1}), None, {IN: 1})
    with pytest.raises(InvalidRequest, match="no more"):
        after(image, "b", {IN: 1})
    image = after(image, "a", {IN: 2})
    image = after(after(image, None, {IN: None}), "b", {IN: 1})
    assert set(image.quotas) == {"a", "b"}


def test_ones_own_limits_go_before_the_default() -> None:
    own, default = Quota(producer_byte_rate=5), Quota(producer_byte_rate=1, request_rate=2)
    assert own.or_else(default) == Quota(producer_byte_rate=5, request_rate=2)
    assert NO_QUOTA.or_else(default) == default
    assert own.or_else(NO_QUOTA) == own
