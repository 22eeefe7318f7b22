"""Apicurio Registry keeps schemas in a topic (``kafkasql``), while it and the topic's leader are killed."""

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.history import Lane
from tests.peers.sources import cache
from tools.maven import MavenError, unpacked
from tools.nodes.cluster import Cluster
from tools.nodes.ports import free_port
from tools.nodes.server_process import ServerProcess, http_get, wait_until

pytestmark = [pytest.mark.peers, pytest.mark.slow]

VERSION: Final = "3.3.3"
ARTIFACT: Final = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
JAVA: Final = 21
"""That it is compiled for, or later."""
JVMS: Final = Path("/usr/lib/jvm")
JOURNAL: Final = "kafkasql-journal"
SCHEMAS: Final = 20
"""Registered in each part."""
READY_S: Final = 120.0
WAIT_S: Final = 120.0
REST_TIMEOUT_S: Final = 30.0


@pytest.fixture(scope="module")
def folder() -> Path:
    try:
        return unpacked(ARTIFACT, cache() / f"apicurio-registry-{VERSION}")
    except MavenError as error:
        pytest.skip(f"Apicurio Registry cannot be had: {error}")


@pytest.fixture(scope="module")
def java() -> str:
    """The first one that is new enough: on the path, or where Linux distributions have further ones."""
    found = [shutil.which("java"), *map(str, sorted(JVMS.glob("*/bin/java")))]
    for program in filter(None, found):
        done = subprocess.run([program, "-version"], capture_output=True, text=True, check=True)
        version = re.search(r'version "(\d+)', done.stderr)
        if version is not None and int(version[1]) >= JAVA:
            return program
    pytest.skip(f"Apicurio Registry needs Java {JAVA}")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    settings = {"kafka": {"default_replicas": 3}}
    with Cluster(tmp_path / "nodes", settings=settings) as cluster:
        yield cluster


class Registry:
    """One process. What it knows when it starts it has from the journal: its database is in memory."""

    def __init__(self, java: str, folder: Path, servers: str, log: Path) -> None:
        port, management = free_port(), free_port()
        self._api = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        self._ready = f"http://127.0.0.1:{management}/health/ready"
        settings = {
            "quarkus.http.port": port,
            "quarkus.management.port": management,
            "apicurio.storage.kind": "kafkasql",
            "apicurio.kafkasql.bootstrap.servers": servers,
        }
        options = [f"-D{name}={value}" for name, value in settings.items()]
        command = [java, "-Xmx512m", "-XX:TieredStopAtLevel=1", *options]
        self._process = ServerProcess([*command, "-jar", str(folder / "quarkus-run.jar")], log)

    def start(self) -> None:
        """It answers requests before it has read the journal, and is ready once it has."""
        self._process.spawn()

        def answers() -> bool:
            self._process.check_running()
            return http_get(self._ready, REST_TIMEOUT_S)[0] == 200

        wait_until(answers, "the registry is not ready", READY_S)

    def kill(self) -> None:
        self._process.kill()

    def register(self, number: int) -> int:
        """Until it is confirmed; its id. The same schema again has the same id."""
        body = json.dumps({"schema": schema(number)}).encode()
        headers = {"Content-Type": "application/json"}
        address = f"{self._api}/subjects/s{number}/versions"
        found = 0

        def done() -> bool:
            nonlocal found
            self._process.check_running()
            request = urllib.request.Request(address, body, headers)
            try:
                with urllib.request.urlopen(request, timeout=REST_TIMEOUT_S) as answer:
                    found = int(json.load(answer)["id"])
            except OSError:
                return False
            return True

        wait_until(done, f"schema {number} is not registered", WAIT_S)
        return found

    def schema_of(self, id_: int) -> Any:
        status, body = http_get(f"{self._api}/schemas/ids/{id_}", REST_TIMEOUT_S)
        assert status == 200, body
        return json.loads(json.loads(body)["schema"])

    def subjects(self) -> set[str]:
        return set(json.loads(http_get(f"{self._api}/subjects", REST_TIMEOUT_S)[1]))


def schema(number: int) -> str:
    fields = [{"name": f"f{it}", "type": "string"} for it in range(number % 5 + 1)]
    return json.dumps({"type": "record", "name": f"R{number}", "fields": fields})


def test_all_schemas_are_there_through_kills(
    cluster: Cluster, tmp_path: Path, java: str, folder: Path
) -> None:
    registry = Registry(java, folder, cluster.servers, tmp_path / "registry.log")
    ids: dict[int, int] = {}

    def register() -> None:
        first = len(ids)
        ids.update((it, registry.register(it)) for it in range(first, first + SCHEMAS))

    def check() -> None:
        assert registry.subjects() == {f"s{it}" for it in ids}
        assert {it: registry.schema_of(id_) for it, id_ in ids.items()} == {
            it: json.loads(schema(it)) for it in ids
        }
        assert len(set(ids.values())) == len(ids)

    try:
        registry.start()
        register()
        check()
        cluster.wait_settled([Lane(JOURNAL, 0)])
        leader = cluster.leader((JOURNAL, 0))
        cluster.kill(leader)
        register()
        check()
        registry.kill()
        registry.start()
        check()
        cluster.start(leader)
        register()
        registry.kill()
        registry.start()
        check()
    finally:
        registry.kill()
