import json
from uuid import UUID

import pytest

from streamlog.backup.manifest import (
    BackupManifest,
    MetadataBackup,
    PartitionBackup,
    Piece,
    StreamBackup,
    _checksum,
    decode_manifest,
    encode_manifest,
)
from streamlog.errors import CorruptFile, InvalidRequest, StreamlogError
from streamlog.metadata.image.records import StreamCreated, decode_record, encode_record
from streamlog.metadata.stream.stream_config import StreamConfig

PIECE = Piece(name="a.log", size_bytes=7, sha256="00", base_offset=3, next_offset=9)


def stream(number: int, name: str = "s", **more: object) -> StreamBackup:
    config = StreamConfig.of(name=name, partitions=2)
    return StreamBackup.model_validate(
        {"stream_id": UUID(int=number), "config": config, "created_ms": number, **more}
    )


def manifest(*streams: StreamBackup) -> BackupManifest:
    made = BackupManifest(backup_id=UUID(int=1), cluster_id="c", written_by="streamlog 9")
    for it in streams:
        made = made.with_stream(it)
    return made


def test_what_is_written_is_read() -> None:
    partition = PartitionBackup(number=0, log_start_offset=4, last_epoch=2, pieces=(PIECE,))
    made = manifest(stream(1, partitions=(partition,)))
    assert decode_manifest(encode_manifest(made), "x") == made
    (kept,) = made.streams
    assert (kept.missing, partition.start_offset, partition.next_offset) == ([1], 3, 9)


@pytest.mark.parametrize("encrypted", [True, False])
def test_who_knows_no_encryption_reads_what_has_none_and_refuses_the_rest(encrypted: bool) -> None:
    piece = PIECE.model_copy(update={"encrypted": encrypted})
    partition = PartitionBackup(number=0, log_start_offset=4, pieces=(piece,))
    data = encode_manifest(manifest(stream(1, partitions=(partition,))))
    content = json.loads(data)["backup"]
    assert content["format"] == (2 if encrypted else 1)
    (written,) = content["streams"][0]["partitions"][0]["pieces"]
    assert ("encrypted" in written) == encrypted
    (kept,) = decode_manifest(data, "x").streams
    assert kept.is_encrypted == encrypted
    assert kept.partitions == (partition,)


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_half_a_manifest_is_refused(cut: int) -> None:
    data = encode_manifest(manifest(stream(1)))
    with pytest.raises(CorruptFile, match=r"^x: "):
        decode_manifest(data[:cut].rstrip(b"}"), "x")


def test_a_changed_manifest_is_refused() -> None:
    data = encode_manifest(manifest(stream(1)))
    with pytest.raises(CorruptFile, match="checksum"):
        decode_manifest(data.replace(b'"c"', b'"d"'), "x")


def test_a_later_format_is_refused_with_the_remedy() -> None:
    made = manifest().model_copy(update={"format": 3})
    with pytest.raises(InvalidRequest, match=r"format 3.*knows 2.*streamlog 9"):
        decode_manifest(encode_manifest(made), "x")


def test_a_stream_that_is_there_again_is_another() -> None:
    made = manifest(stream(1), stream(2), stream(3, "other"))
    assert made.stream("s").stream_id == UUID(int=2)
    assert made.stream("s", UUID(int=1)).created_ms == 1
    assert len({it.folder for it in made.streams}) == 3
    with pytest.raises(InvalidRequest, match="no stream 'absent'; it has other, s"):
        made.stream("absent")


def test_it_is_json_that_a_person_can_read() -> None:
    body = json.loads(encode_manifest(manifest(stream(1))))
    assert body["backup"]["streams"][0]["config"]["name"] == "s"


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a/b", "..", ".", "", "a\n"])
def test_a_crafted_manifest_names_no_file_elsewhere(name: str) -> None:
    crafted = PIECE.model_copy(update={"name": name})
    whole = PartitionBackup(number=0, log_start_offset=0, pieces=(PIECE,))
    partition = whole.model_copy(update={"pieces": (crafted,)})
    made = manifest(stream(1).model_copy(update={"partitions": (partition,)}))
    with pytest.raises(CorruptFile, match="does not decode"):
        decode_manifest(encode_manifest(made), "here")
    snapshot = MetadataBackup.model_construct(name=name, size_bytes=1, sha256="", offset=1, epoch=1)
    data = encode_manifest(manifest().model_copy(update={"metadata": snapshot}))
    with pytest.raises(CorruptFile, match="does not decode"):
        decode_manifest(data, "here")


@pytest.mark.parametrize("name", ["../../x", "/x", "a/b", "..", ".", "", "a\n", "a\0b", "x" * 300])
def test_a_crafted_backup_names_no_folder_elsewhere(name: str) -> None:
    """Streams are called as folders are: those of the manifest, and those of the snapshot."""
    body = json.loads(encode_manifest(manifest(stream(1))))["backup"]
    body["streams"][0]["config"]["name"] = name
    with pytest.raises(CorruptFile, match="does not decode"):
        decode_manifest(json.dumps({"sha256": _checksum(body), "backup": body}).encode(), "here")
    created = StreamCreated(stream_id=UUID(int=1), config=StreamConfig.of(name="s"), created_ms=1)
    line = json.loads(encode_record(created))
    assert line["config"]["name"] == "s"
    line["config"]["name"] = name
    with pytest.raises(StreamlogError):
        decode_record(json.dumps(line).encode())
