"""Tiered storage in the stores of Azure and Google, as Azurite and fake-gcs-server have them."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient

from streamlog.arrow import read
from streamlog.errors import ConfigError, ObjectExists, ObjectNotFound, ObjectStoreDenied
from streamlog.tier.manifest import TierManifest
from streamlog.tier.manifest_store import ManifestStore
from streamlog.tier.object_layout import PartitionPrefix, StreamPrefix
from streamlog.tier.object_store import ObjectStore, StoreLimits
from streamlog.tier.segment_object import SealedFiles, download_segment, upload_segment
from tests.faulty_store import FaultyStore
from tests.peers.sources import NoSourcesError
from tests.stores.servers import ACCOUNT, AzureServer, GoogleServer, StoreServer
from tests.tiered_node import (
    COUNT,
    EARLIEST,
    LATEST,
    TOPIC,
    consume,
    create,
    listed,
    produce,
    settings_of,
    until_front_is_gone,
    value,
)
from tests.tiered_segments import content, sealed_segments
from tools.nodes.cluster import Cluster, NoNats
from tools.nodes.node_process import NodeProcess, Settings
from tools.nodes.server_process import run_streamlog, wait_until

pytestmark = [pytest.mark.peers, pytest.mark.slow]  # the servers are installed and built first

QUICK = StoreLimits(request_timeout_ms=10_000, backoff_ms=5, backoff_ms_max=20)
HOUR_MS = 3_600_000
KINDS = {"azure": AzureServer, "google": GoogleServer}


@pytest.fixture(scope="module", params=KINDS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StoreServer]:
    try:
        server: StoreServer = KINDS[request.param](tmp_path_factory.mktemp(request.param))
    except NoSourcesError as error:
        pytest.skip(f"no store of {request.param}: {error}")
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture(autouse=True)
def credentials(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, told in server.environment_of_clients.items():
        monkeypatch.setenv(name, told)


@pytest.fixture
def url(server: StoreServer) -> str:
    """A folder of the bucket of its own."""
    return f"{server.url}/{uuid4().hex}"


@pytest.fixture
async def store(server: StoreServer, url: str) -> AsyncIterator[ObjectStore]:
    store = ObjectStore(url, endpoint=server.endpoint, limits=QUICK)
    yield store
    store.close()


# Requests


async def test_the_store_keeps_the_contract(store: ObjectStore) -> None:
    await store.check("cluster")
    await store.create("a/b", b"fir", memoryview(b"st"))
    await store.create("a/b", b"first")  # what is there already, as after a lost answer
    with pytest.raises(ObjectExists, match="a/b: there is another object"):
        await store.create("a/b", b"other")
    await store.replace("a/c", b"old")
    await store.replace("a/c", b"new one")
    assert [(it.path, it.size_bytes) for it in await store.list("a")] == [("a/b", 5), ("a/c", 7)]
    assert await store.size_bytes("a/c") == 7
    assert await store.size_bytes("a/d") is None
    assert bytes(await store.read_range("a/b", 1, 3)) == b"irs"
    await store.delete(["a/missing", "a/b", "a/c"])
    assert await store.list("a") == []
    with pytest.raises(ObjectNotFound):
        await store.read("a/b")


async def test_of_many_that_write_a_name_one_succeeds(server: StoreServer, url: str) -> None:
    stores = [ObjectStore(url, endpoint=server.endpoint, limits=QUICK) for _ in range(6)]
    for round_ in range(10):
        name = f"a/{round_}"
        found = await asyncio.gather(
            *(it.create(name, b"of %d" % n) for n, it in enumerate(stores)), return_exceptions=True
        )
        winners = [n for n, it in enumerate(found) if it is None]
        assert len(winners) == 1, found
        assert {type(it) for it in found if it is not None} == {ObjectExists}
        assert await stores[0].read(name) == b"of %d" % winners[0]
    for it in stores:
        it.close()


async def test_an_answer_that_is_lost_hides_neither_success_nor_another_writer(
    server: StoreServer, url: str
) -> None:
    async with FaultyStore(server.port) as faulty:
        store = ObjectStore(url, endpoint=server.endpoint_by(faulty.endpoint), limits=QUICK)
        fault = faulty.strike("lost answer", times=2, method="PUT")
        await store.create("a/b", b"mine")
        assert fault.struck == 2
        await store.replace("a/c", b"theirs")
        faulty.strike("lost answer", method="PUT")
        with pytest.raises(ObjectExists):
            await store.create("a/c", b"mine")
        assert await store.read("a/b") == b"mine"
        store.close()


async def test_a_store_that_ignores_the_condition_is_refused(server: StoreServer, url: str) -> None:
    async with FaultyStore(server.port) as faulty:
        store = ObjectStore(url, endpoint=server.endpoint_by(faulty.endpoint), limits=QUICK)
        faulty.strike("no condition", times=2, method="PUT")
        with pytest.raises(ConfigError, match="ignores the condition of a put"):
            await store.check("cluster")
        store.close()


async def test_a_bucket_that_is_not_there_is_told(server: StoreServer) -> None:
    missing = server.url.replace("tier", "missing")
    store = ObjectStore(missing, endpoint=server.endpoint, limits=QUICK)
    with pytest.raises(ObjectStoreDenied, match=r"check the bucket \(tier\.url\)"):
        await store.check("cluster")
    store.close()


@pytest.mark.parametrize("server", ["azure"], indirect=True)  # fake-gcs-server takes any
async def test_a_wrong_key_is_told(
    server: StoreServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "AAAA")
    store = ObjectStore(url, endpoint=server.endpoint, limits=QUICK)
    with pytest.raises(ObjectStoreDenied, match="403"):
        await store.check("cluster")
    store.close()


@pytest.mark.parametrize("server", ["azure"], indirect=True)
async def test_azure_takes_the_account_in_the_url(
    server: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME")
    url = f"abfss://{server.url.removeprefix('az://')}@{ACCOUNT}.dfs.core.windows.net/one"
    store = ObjectStore(url, endpoint=server.endpoint, limits=QUICK)
    await store.check("cluster")
    store.close()


# Segments and manifests


def small_segment(folder: Path) -> SealedFiles:
    return sealed_segments(folder / "s" / "0")[0]


def large_segment(folder: Path) -> SealedFiles:
    """Of three parts."""
    return sealed_segments(folder / "s" / "0", batches=40, value_bytes=500_000)[0]


@pytest.mark.parametrize("make", [small_segment, large_segment])
async def test_a_segment_goes_up_and_comes_back(
    store: ObjectStore, tmp_path: Path, make: Callable[[Path], SealedFiles]
) -> None:
    files = make(tmp_path)
    prefix = PartitionPrefix(StreamPrefix("cluster", uuid4()), 0)
    tiered = await upload_segment(store, prefix, files, leader_epoch=1, upload_id=uuid4())
    assert [it.size_bytes for it in await store.list(prefix.segments)] == [tiered.object_bytes]
    target = tmp_path / "back"
    target.mkdir()
    await download_segment(store, prefix, tiered, str(target))
    assert content(target / Path(files.log_path).name) == content(files.log_path)


async def test_two_leaders_never_own_one_version_and_the_loser_leaves_an_orphan(
    store: ObjectStore, tmp_path: Path
) -> None:
    prefix = PartitionPrefix(StreamPrefix("cluster", uuid4()), 0)
    manifests = ManifestStore(store, "cluster")
    files = small_segment(tmp_path)
    empty = TierManifest(stream_id=prefix.stream.stream_id, partition=0)
    segments = [
        await upload_segment(store, prefix, files, leader_epoch=1, upload_id=uuid4())
        for _ in range(2)
    ]
    rivals = [empty.with_segment(it).next_version(1) for it in segments]
    found = await asyncio.gather(*map(manifests.put, rivals), return_exceptions=True)
    assert [type(it) for it in found if it is not None] == [ObjectExists]
    winner = found.index(None)
    assert await manifests.newest(prefix) == rivals[winner]
    orphans = await manifests.orphans(
        rivals[winner],
        leader_epoch=1,
        grace_ms=HOUR_MS,
        now_ms=time.time_ns() // 1_000_000 + 2 * HOUR_MS,
    )
    lost = f"{prefix.segments}/{segments[1 - winner].name}"
    assert [it.path for it in orphans.removable] == [lost]
    await manifests.remove_orphans(orphans)
    assert await manifests.missing(rivals[winner]) == []
    assert await store.size_bytes(lost) is None


# Nodes


@pytest.fixture
def settings(server: StoreServer, url: str, tmp_path: Path) -> Settings:
    settings = settings_of(tmp_path)
    settings["tier"] |= {"url": url, "endpoint": server.endpoint}
    return settings


@pytest.fixture
def node(settings: Settings, tmp_path: Path) -> Iterator[NodeProcess]:
    with Cluster(tmp_path, nodes=1, settings=settings, nats=NoNats()) as cluster:
        yield cluster[1]


async def objects(server: StoreServer, url: str) -> list[str]:
    store = ObjectStore(url, endpoint=server.endpoint, limits=QUICK)
    try:
        return [it.path for it in await store.list("")]
    finally:
        store.close()


def test_a_stream_is_tiered_and_read_and_comes_back_out_of_the_store_alone(
    server: StoreServer, url: str, settings: Settings, node: NodeProcess, tmp_path: Path
) -> None:
    create(node.kafka)
    produce(node.kafka, 0, COUNT)
    until_front_is_gone(node, COUNT // 2)
    assert listed(node.kafka, EARLIEST) == 0
    expected = [(number, value(number)) for number in range(COUNT)]
    assert consume(node.kafka, 0, COUNT) == expected
    node.kill()
    node.start()
    produce(node.kafka, COUNT, COUNT + 500)
    expected += [(number, value(number)) for number in range(COUNT, COUNT + 500)]
    assert consume(node.kafka, 0, len(expected)) == expected
    table = read(TOPIC, servers=node.kafka, store=url, store_endpoint=server.endpoint).read_all()
    offsets, values = (table[it].to_pylist() for it in ("offset", "value"))
    assert sorted(zip(offsets, values, strict=True)) == expected
    end = tier_end(node)
    names = asyncio.run(objects(server, url))
    cluster_id = names[0].split("/")[0]
    assert sum("/segments/" in it for it in names) > 5
    node.kill()
    backup = str(tmp_path / "backup")
    run("backup", "create", backup, "--store", url, "--store-endpoint", server.endpoint,
        "--cluster-id", cluster_id)  # fmt: skip
    other = {**settings, "tier": {**settings["tier"], "url": f"{url}-new"}}
    with Cluster(tmp_path / "new", nodes=1, settings=other, nats=NoNats()) as new:
        run("backup", "restore", "stream", backup, TOPIC, "--bootstrap-server", new[1].kafka)
        assert consume(new[1].kafka, 0, end) == expected[:end]
        assert listed(new[1].kafka, LATEST) == end >= COUNT // 2


def test_a_deleted_topic_leaves_nothing_in_the_store(
    server: StoreServer, url: str, node: NodeProcess
) -> None:
    create(node.kafka)
    produce(node.kafka, 0, 1_000)
    wait_until(
        lambda: any("/segments/" in it for it in asyncio.run(objects(server, url))),
        "something is copied", 30,
    )  # fmt: skip
    admin = AdminClient({"bootstrap.servers": node.kafka})
    admin.delete_topics([TOPIC])[TOPIC].result(30)
    wait_until(lambda: asyncio.run(objects(server, url)) == [], "all is gone", 60)


def run(*arguments: str) -> str:
    done = run_streamlog(arguments, os.environ, timeout_s=60.0)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tier_end(node: NodeProcess) -> int:
    """What the store has, once it has all that is closed."""
    end = -1

    def is_tiered() -> bool:
        nonlocal end
        command = ("stream", "info", TOPIC, "--json", "--bootstrap-server", node.kafka)
        tier = json.loads(run(*command))["partitions"][0]["tier"]
        end = int(tier["tiered_end_offset"])
        return not tier["lag_bytes"]

    wait_until(is_tiered, "all that is closed is in the store", 60)
    return end
