"""What is wrong with a URL, and what is missing, is told before anything is sent."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from streamlog.config import TierSection
from streamlog.errors import (
    ConfigError,
    ObjectExists,
    ObjectNotFound,
    ObjectStoreUnavailable,
)
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.partition.tiering.object_storage import ObjectStorage
from streamlog.tier.object_store import NICENESS, NICENESS_MAX, WORKERS, ObjectStore, check_url


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("ftp://host/folder", "is not of a known kind; name s3://bucket/prefix"),
        ("bucket", "is not of a known kind"),
        ("s3:///prefix", "names no bucket; name s3://bucket"),
        ("file://relative/folder", "is not an absolute path; name file:///folder"),
    ],
)
def test_a_wrong_url_is_told_with_its_remedy(url: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_url(url)
    assert problem in str(raised.value)
    assert raised.value.key == "tier.url"


def test_a_missing_package_is_told_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.exceptions", None)
    with pytest.raises(ConfigError, match=r"needs the package obstore; pip install 'streamlog\["):
        ObjectStore("s3://bucket/prefix")


def test_nothing_of_the_room_needs_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [it for it in sys.modules if it.startswith(("streamlog.tier", "obstore"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "obstore", None)
    import streamlog.tier.manifest_store
    import streamlog.tier.segment_cache  # noqa: F401


@pytest.mark.parametrize("kind", ["folder", "memory"])
async def test_each_store_keeps_the_contract(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "a folder"  # with a space, which a URL encodes
    store = ObjectStore(folder.as_uri() if kind == "folder" else "memory:///")
    await store.check("cluster")
    await store.create("a/b", b"fir", memoryview(b"st"))
    await store.create("a/b", b"first")  # what is there already, as after a lost answer
    with pytest.raises(ObjectExists):
        await store.create("a/b", b"other")
    await store.replace("a/c", b"old")
    await store.replace("a/c", b"new one")
    assert [(it.path, it.size_bytes) for it in await store.list("a")] == [("a/b", 5), ("a/c", 7)]
    assert await store.size_bytes("a/c") == 7
    assert await store.size_bytes("a/d") is None
    assert bytes(await store.read_range("a/b", 1, 3)) == b"irs"
    await store.delete(["a/missing", "a/b", "a/c"])
    await store.delete([])
    assert await store.list("a") == []
    with pytest.raises(ObjectNotFound):
        await store.read("a/b")
    store.close()


async def test_a_closed_store_runs_nothing(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path.as_uri())
    store.close()
    with pytest.raises(ObjectStoreUnavailable, match="closed"):
        await store.run(tmp_path.stat)


async def test_reads_do_not_wait_for_segments_that_are_checked(tmp_path: Path) -> None:
    settings = TierSection(url=(tmp_path / "bucket").as_uri(), concurrency=1)
    storage = ObjectStorage(settings, "c", tmp_path, files=FilePool(OsDisk(), 8))
    may_end = threading.Event()
    checks = [asyncio.create_task(storage.run(may_end.wait)) for _ in range(2 * WORKERS)]
    await asyncio.sleep(0)
    async with asyncio.timeout(9):
        assert await storage.store.run(tmp_path.exists)
    may_end.set()
    assert all(await asyncio.gather(*checks))
    await storage.close()
    with pytest.raises(ObjectStoreUnavailable, match="closed"):
        await storage.run(may_end.wait)


async def test_a_store_that_was_closed_while_the_node_starts_gives_no_way(tmp_path: Path) -> None:
    storage = ObjectStore(tmp_path.as_uri())
    storage.close()
    await storage.give_way()


NICENESS_OF_THREADS = """
import asyncio, os, sys
from streamlog.tier.object_store import ObjectStore

def niceness(thread):
    return int(open(f"/proc/self/task/{thread}/stat").read().rpartition(")")[2].split()[16])

async def main():
    store = ObjectStore(sys.argv[1])
    await store.give_way()
    await store.replace("a", b"a" * 1000)
    print(sorted(niceness(it) for it in os.listdir("/proc/self/task") if int(it) != os.getpid()))
    print(niceness(os.getpid()))
    store.close()

asyncio.run(main())
"""


def test_what_moves_bytes_gives_way_to_the_event_loop(tmp_path: Path) -> None:
    """In a process of its own: what obstore's threads are like is settled by the first request."""
    command = [sys.executable, "-c", NICENESS_OF_THREADS, tmp_path.as_uri()]
    threads, loop = subprocess.run(
        command, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    found = set(json.loads(threads))
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert found == {min(NICENESS_MAX, own + NICENESS)}
    assert int(loop) == own
