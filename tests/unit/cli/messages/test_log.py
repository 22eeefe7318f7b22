import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamlog.cli.program import app
from streamlog.log.log import PartitionLog
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.file_pool import FilePool
from tests.log_folder import A_KEY, a_key_ring, append


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made(tmp_path)


def made(tmp_path: Path, *, encrypts: bool = False) -> Path:
    disk = OsDisk()
    settings, files = LogSettings(encrypts=encrypts), FilePool(disk, 16, a_key_ring())
    log = PartitionLog.open(tmp_path / "0", settings, disk=disk, files=files)
    append(log, [b"first", b"second"])
    append(log, [b"\xff"])
    log.close()
    return tmp_path / "0"


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["log", *map(str, arguments)])
    return done.exit_code, done.stdout


def damage(folder: Path) -> Path:
    [segment] = folder.glob("*.log")
    data = bytearray(segment.read_bytes())
    data[70] ^= 1
    segment.write_bytes(data)
    return segment


def test_verify_says_what_it_read(folder: Path) -> None:
    assert run("verify", folder) == (0, "1 segments, 155 bytes, 0 findings\n")


def test_verify_tells_what_a_node_has_kept_aside(folder: Path) -> None:
    kept = next(folder.rglob("*.log")).with_suffix(".log.damaged")
    kept.write_bytes(b"x")
    code, told = run("verify", folder)
    assert code == 0
    assert f"{kept}: damaged, kept aside" in told
    _, told = run("verify", folder, "--json")
    assert json.loads(told)["aside"] == [{"file": str(kept), "size_bytes": 1}]


def test_verify_names_the_damage_and_fails(folder: Path) -> None:
    segment = damage(folder)
    code, told = run("verify", folder)
    assert code == 1
    assert f"{segment} position 0 offset 0: the checksum is wrong" in told
    code, told = run("verify", folder, "--json")
    assert code == 1
    [finding] = json.loads(told)["findings"]
    assert (finding["file"], finding["position"]) == (str(segment), 0)


def test_dump_shows_batches(folder: Path) -> None:
    code, told = run("dump", folder)
    assert code == 0
    assert "0..1" in told
    assert "ENCRYPTED" not in told
    first, second = json.loads(run("dump", folder, "--json")[1])
    assert (first["base_offset"], first["record_count"], second["position"]) == (0, 2, 86)


def test_dump_shows_records_as_read_does(folder: Path) -> None:
    lines = [json.loads(line) for line in run("dump", folder, "--records")[1].splitlines()]
    assert [line["offset"] for line in lines] == [0, 1, 2]
    assert lines[0]["value"] == "first"
    assert lines[2]["value"] == {"base64": "/w=="}


def test_dump_goes_on_after_damage(folder: Path) -> None:
    damage(folder)
    first, second = json.loads(run("dump", folder, "--json")[1])
    assert first["damage"]["problem"] == "the checksum is wrong"
    assert second["base_offset"] == 2


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    for command in ("verify", "dump"):
        assert run(command, tmp_path / "nothing")[0] == 2


def test_what_is_encrypted_is_shown_as_such_and_opened_with_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(tmp_path, encrypts=True)
    monkeypatch.setenv("A_KEY", A_KEY.hex())
    key = ("--key", "k1=env:A_KEY")
    assert [line.split()[-1] for line in run("dump", folder)[1].splitlines()[-2:]] == ["k1", "k1"]
    first, _ = json.loads(run("dump", folder, "--json")[1])
    assert (first["record_count"], first["encrypted_by"]) == (2, "k1")
    assert run("dump", folder, "--records") == (1, "")
    lines = [json.loads(line) for line in run("dump", folder, "--records", *key)[1].splitlines()]
    assert [line["offset"] for line in lines] == [0, 1, 2]
    assert lines[0]["value"] == "first"
    code, told = run("verify", folder)
    assert code == 0
    assert told == (
        "1 segments are encrypted and were checked by their checksums only: to check what they"
        " hold, give --key or --config for k1\n1 segments, 219 bytes, 0 findings\n"
    )
    assert run("verify", folder, *key) == (0, "1 segments, 219 bytes, 0 findings\n")
    assert json.loads(run("verify", folder, "--json")[1])["unopened"][0]["key_name"] == "k1"
