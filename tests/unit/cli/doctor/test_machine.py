"""The disk, the limits and the clocks of this machine are looked at."""

import resource
from pathlib import Path
from typing import Any

import pytest

from streamlog.cli.doctor import clocks, disk, limits, node
from streamlog.config import Settings
from streamlog.findings import Finding


def settings(folder: Path, **sections: Any) -> Settings:
    return Settings(**{"node": {"data_dir": folder}, **sections})


def test_a_disk_is_measured_and_left_as_it_was(tmp_path: Path) -> None:
    found = list(disk.examine(tmp_path / "not" / "there" / "yet", 0))
    syncs = found[-1].measured or {}
    assert 0 < syncs["fdatasync_median_seconds"] <= syncs["fdatasync_max_seconds"]
    room = found[0].measured or {}
    assert 0 < room["free_bytes"] < room["size_bytes"]
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fails_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.fdatasync", fails)
    last = list(disk.examine(tmp_path, 0))[-1]
    assert (last.severity, "Input/output error" in last.what) == ("critical", True)
    assert list(tmp_path.iterdir()) == []


def test_the_kind_of_a_file_system(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/a / ext4 rw 0 0\n"
        f"tmpfs {tmp_path} tmpfs rw 0 0\n"
        f"srv:/x {tmp_path}/with\\040blank nfs4 rw 0 0\nshort\n"
    )
    assert disk.file_system(tmp_path / "data", mounts) == "tmpfs"
    assert disk.file_system(tmp_path / "with blank" / "data", mounts) == "nfs4"
    assert disk.file_system(Path("/elsewhere"), mounts) == "ext4"
    assert disk.file_system(tmp_path, tmp_path / "none") == ""


@pytest.mark.parametrize(
    ("soft", "state"), [(1_024, "critical"), (5_000, "warning"), (65_536, "ok")]
)
def test_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, soft: int, state: str) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    (finding,) = limits.examine(settings(tmp_path), None)
    assert finding.severity == state
    assert bool(finding.remedy) == (state != "ok")


def test_files_with_secrets_are_for_one_user(tmp_path: Path) -> None:
    config, seed = tmp_path / "node.toml", tmp_path / "seed"
    for path, mode in ((config, 0o644), (seed, 0o600)):
        path.write_text("s3cret")
        path.chmod(mode)
    key = tmp_path / "key"
    key.write_text("s3cret")
    key.chmod(0o640)
    nats = {"token": "t", "nkey_seed": seed}
    keys = {"keys": {"k1": f"file:{key}", "k2": "env:KEY"}, "active_key": "k1"}
    looked_at = settings(tmp_path, nats=nats, encryption=keys)
    found = [it for it in limits.examine(looked_at, config) if it.severity != "ok"]
    said = " ".join(it.what for it in found)
    assert f"others may read {config} (mode 644)" in said
    assert f"encryption.keys.k1: others may read {key} (mode 640)" in said
    assert str(seed) not in said and "s3cret" not in said
    gone = settings(tmp_path, nats={"nkey_seed": tmp_path / "none"})
    assert [it.severity for it in limits.examine(gone, None)][1:] == ["critical"]


@pytest.mark.parametrize(
    ("skew_s", "took_s", "state"),
    [(0.1, 0.01, "ok"), (-0.8, 0.01, "warning"), (9.0, 0.1, "critical"), (0.9, 2.0, "ok")],
)
def test_a_skew_is_judged_by_what_is_sure(skew_s: float, took_s: float, state: str) -> None:
    finding = clocks.judged("node", skew_s, took_s)
    assert finding.severity == state
    assert ("ahead of" if skew_s > 0 else "behind") in finding.what


def test_the_times_that_others_tell() -> None:
    assert clocks.node_time_s({"time_ms": 1_500}) == 1.5
    assert clocks.nats_time_s({"now": "1970-01-01T00:00:02.5Z"}) == 2.5
    assert clocks.nats_time_s({"now": "1970-01-01T00:00:02.123456789Z"}) == pytest.approx(2.123456)


async def test_who_does_not_answer_is_passed_over(tmp_path: Path) -> None:
    found: list[Finding] = []
    async for finding in clocks.examine(settings(tmp_path), ["127.0.0.1:1"], "ftp://x", 1.0):
        found.append(finding)  # noqa: PERF401 - nothing asynchronous makes a list of its own
    assert [it.severity for it in found] == ["skipped", "critical"]


@pytest.mark.parametrize(
    ("total", "free", "state", "said"),
    [
        (24 << 20, 0, "critical", "0 bytes of 24.0 MiB are free at /data (0%): it is full"),
        (
            24 << 20,
            100 << 10,
            "critical",
            "100.0 KiB of 24.0 MiB are free at /data (0%): it is full",
        ),
        (100 << 30, 5 << 30, "warning", "5.0 GiB of 100.0 GiB are free at /data (5%)"),
        (100 << 30, 50 << 30, "ok", "50.0 GiB of 100.0 GiB are free at /data (50%)"),
    ],
)
def test_a_full_disk_is_no_good_news(total: int, free: int, state: str, said: str) -> None:
    found = disk.room("/data", total, free, 4 << 20)
    assert (found.severity, found.what) == (state, said)


def test_what_the_node_says_of_itself() -> None:
    (well,) = node.judged("node 1", '{"ready": true, "reasons": {}}')
    assert (well.severity, well.what) == ("ok", "node 1 says that it is ready")
    text = '{"ready": false, "reasons": {"disk": "its disk is full", "replicas": "catching up"}}'
    disk_said, replicas = node.judged("node 1", text)
    assert (disk_said.severity, replicas.severity) == ("critical", "note")
    assert disk_said.what == "node 1: its disk is full"
    (other,) = node.judged("node 1", "<html>")
    assert other.severity == "skipped"
