"""KafkaJS' own tests that need a cluster, against three nodes. ``kafkajs.toml`` says which, and what is expected.

They run by Jest on Node.js, which comes from npm as all that the tests depend on.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.peers.expectations import FAILED, PASSED, SKIPPED, Expectations, judge
from tests.peers.sources import NoSourcesError, Peer, cache, sources
from tools.nodes.cluster import Cluster, NoNats
from tools.nodes.node_process import Settings

pytestmark = [pytest.mark.peers, pytest.mark.slow]

VERSION: Final = "2.2.4"
KAFKAJS: Final = Peer("kafkajs", "https://github.com/tulios/kafkajs", ".")
PACKAGES: Final = (
    "execa@2.1.0",
    "glob@7.2.3",
    "ip@1.1.9",
    "jest@25.5.4",
    "jest-circus@25.5.4",
    "jest-extended@0.11.5",
    "jsonwebtoken@9.0.3",
    "mockdate@2.0.5",
    "semver@6.3.1",
    "uuid@3.4.0",
)
"""Of the versions that its package.json names."""
KAFKA_VERSION: Final = "2.4"
"""What the tests are told."""
SETTINGS: Final[Settings] = {
    "kafka": {
        "advertised_host": "localhost",
        "auto_create_topics": True,
        "default_partitions": 2,
        "default_replicas": 2,
    },
    "groups": {"initial_rebalance_delay_ms": 0, "session_timeout_ms_min": 1_000},
    "log": {"sync": "os"},
    "nats_listen": {},
}
"""As their Kafka has it. Many tests take what acks=1 acknowledges for committed, as it is without fdatasync."""
REPLACED: Final = {
    "=> [`${host}:9092`, `${host}:9095`, `${host}:9098`]": "=> process.env.BROKERS.split(',')",
    "brokers: [`${getHost()}:9092`]": "brokers: plainTextBrokers()",
    "host: getHost(),\n  port: 9092,": (
        "host: plainTextBrokers()[0].split(':')[0],\n"
        "  port: Number(plainTextBrokers()[0].split(':')[1]),"
    ),
}
"""In its helpers: where the brokers are."""
ADD_PARTITIONS: Final = """#!/bin/sh
exec "{python}" -c "
import os
from confluent_kafka.admin import AdminClient, NewPartitions
admin = AdminClient({{'bootstrap.servers': os.environ['BROKERS']}})
wanted = NewPartitions(os.environ['TOPIC'], int(os.environ['PARTITIONS']))
admin.create_partitions([wanted])[os.environ['TOPIC']].result(30)
"
"""
INSTALL_TIMEOUT_S: Final = 300.0
RUN_TIMEOUT_S: Final = 450.0
AT_ONCE: Final = 2
LIST: Final = Path(__file__).with_name("kafkajs.toml")


@pytest.fixture
def folder() -> Path:
    """A copy of its sources, within a folder of what the tests depend on."""
    try:
        found = sources(KAFKAJS, VERSION).folder
    except NoSourcesError as error:
        pytest.skip(f"the tests of KafkaJS cannot be had: {error}")
    root = cache() / f"kafkajs-{VERSION}-packages"
    if not (root / "done").exists():
        root.mkdir(parents=True, exist_ok=True)
        (root / "package.json").write_text("{}")
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *PACKAGES]
        try:
            subprocess.run(
                command, cwd=root, capture_output=True, check=True, timeout=INSTALL_TIMEOUT_S
            )
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"Jest cannot be had: {error}")
        (root / "done").touch()
    copy = root / "source"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(found, copy)
    helpers = copy / "testHelpers" / "index.js"
    content = helpers.read_text()
    for old, new in REPLACED.items():
        assert old in content
        content = content.replace(old, new)
    helpers.write_text(content)
    script = copy / "scripts" / "addPartitions.sh"
    script.write_text(ADD_PARTITIONS.format(python=sys.executable))
    script.chmod(0o755)
    return copy


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "nodes", settings=SETTINGS, nats=NoNats()) as started:
        yield started


def test_kafkajs_own_tests_pass(
    cluster: Cluster, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = Expectations.read(LIST)
    brokers = ",".join(f"localhost:{node.kafka_port}" for node in cluster.nodes.values())
    environment = {**os.environ, "BROKERS": brokers, "KAFKA_VERSION": KAFKA_VERSION}
    files = [
        str(path.relative_to(folder))
        for listed in expected.files
        for path in sorted((folder / listed).rglob("*.spec.js"))
    ]
    chosen = [file for file in files if expected.place(file) != "left out"]
    found, said = run(folder, chosen, tmp_path / "told.json", environment)
    wanted = {name: it for name, it in found.items() if expected.place(name) != "left out"}
    verdict = judge(expected, [*files, *found], wanted)
    with capsys.disabled():
        print(
            f"\nKafkaJS {VERSION}: {len(verdict.passed)} passed, {len(verdict.failed)} failed,"
            f" {len(verdict.failed_as_expected)} failed as expected,"
            f" {len(verdict.skipped)} skipped themselves"
        )
        for name in verdict.surprises:
            print(f"  passed, though it is listed as failing: {name}")
        for name in verdict.unknown:
            print(f"  listed, but there is no such test: {name}")
    assert verdict.passed
    assert verdict.failed == [], "\n\n".join(f"{it}:\n{said[it]}" for it in verdict.failed)


def run(
    folder: Path, files: list[str], told: Path, environment: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """How each test ended, by its file and name, and what was said of it."""
    jest = folder.parent / "node_modules" / ".bin" / "jest"
    options = ["--ci", "--no-watchman", "--forceExit", f"--maxWorkers={AT_ONCE}"]
    options += ["--reporters=default", "--json", f"--outputFile={told}", "--runTestsByPath"]
    done = subprocess.run(
        [str(jest), *options, *files],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        timeout=RUN_TIMEOUT_S,
    )
    assert told.exists(), f"the tests did not come to an end:\n{done.stdout[-10_000:]}"
    ends = {"passed": PASSED, "failed": FAILED}
    found, said = {}, {}
    report: dict[str, Any] = json.loads(told.read_text())
    for file in report["testResults"]:
        path = Path(file["name"]).relative_to(folder)
        if not file["assertionResults"]:
            found[str(path)], said[str(path)] = FAILED, file["message"]
        for it in file["assertionResults"]:
            name = f"{path}::{it['fullName']}"
            found[name] = ends.get(it["status"], SKIPPED)
            said[name] = "\n".join(it["failureMessages"] or [])
    return found, said
