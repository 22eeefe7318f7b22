"""nats.go's own tests, with nodes in the place of the nats-servers that they ask for.

``nats-go.toml`` (without JetStream), ``nats-go-js.toml`` (JetStream by the older interface) and
``nats-go-jetstream.toml`` (by the newer one) list which of them, and which fail for a known reason.
What wants a setting that nodes do not have is refused by ``nats_tester``, and counted by its reason.
"""

import contextlib
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.peers.expectations import Expectations
from tests.peers.nats_tester import NOT_OFFERED
from tests.peers.sources import NoSourcesError, Peer, sources

pytestmark = [pytest.mark.peers, pytest.mark.slow]

VERSION: Final = "1.55.0"
NATS_GO: Final = Peer("nats.go", "https://github.com/nats-io/nats.go", ".")
RUN_TIMEOUT_S: Final = 2_400.0
AT_ONCE: Final = 2
"""So many processes share the tests: they wait most of the time."""
BUILD_TIMEOUT_S: Final = 900.0

_BEGIN = re.compile(r"=== RUN\s+(\w+)$")
_END = re.compile(r"--- (PASS|FAIL|SKIP): (\w+) ")
_NAME = re.compile(r"^func (Test\w+)\(", re.MULTILINE)
_REFUSAL = re.compile(rf"{NOT_OFFERED}: (.+)")


def built(package: str) -> tuple[Path, str]:
    """The folder of the tests, with their program in it, and of which version they are."""
    try:
        root, version, _ = sources(NATS_GO, VERSION)
    except NoSourcesError as error:
        pytest.skip(f"the tests of nats.go cannot be had: {error}")
    found = root / package
    build = [
        f"-modfile={root / 'go_test.mod'}",
        "-tags=internal_testing",
        "-vet=off",
        "-c",
        "-o",
        "tests",
    ]
    try:
        done = subprocess.run(
            ["go", "test", *build, "."],
            cwd=found,
            capture_output=True,
            text=True,
            check=False,
            timeout=BUILD_TIMEOUT_S,
        )
    except FileNotFoundError:
        pytest.skip("go is not installed")
    if done.returncode != 0:
        pytest.skip(f"the tests of nats.go cannot be built: {done.stderr.strip()[-300:]}")
    return found, version


@pytest.fixture
def testers(tmp_path: Path) -> Iterator[list[str]]:
    """The addresses of one for each process: a test may end all servers of its own."""
    with contextlib.ExitStack() as stack:
        folders = [tmp_path / f"tester{number}" for number in range(AT_ONCE)]
        yield [stack.enter_context(_tester(folder)) for folder in folders]


@contextlib.contextmanager
def _tester(folder: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "tests.peers.nats_tester", str(folder)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@pytest.mark.parametrize(
    ("listed", "package"),
    [("nats-go", "test"), ("nats-go-js", "test"), ("nats-go-jetstream", "jetstream/test")],
)
def test_nats_gos_own_tests_pass(
    testers: list[str], listed: str, package: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, version = built(package)
    expected = Expectations.read(Path(__file__).with_name(f"{listed}.toml"))
    texts = [(folder / file).read_text() for file in expected.files]
    collected = [name for text in texts for name in _NAME.findall(text) if name != "TestMain"]
    names = [name for name in collected if expected.place(name) != "left out"]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        shares = [names[number::AT_ONCE] for number in range(AT_ONCE)]
        said = "".join(threads.map(partial(run, folder), testers, shares))
    again = [name for name, outcome in outcomes(said).items() if outcome == "FAIL"]
    if again := [it for it in again if not _REFUSAL.search(said_by(said)[it])]:
        said += run(folder, testers[0], again)  # some depend on timing
    found, texts_of = outcomes(said), said_by(said)
    reasons = {it: _REFUSAL.search(texts_of[it]) for it, end in found.items() if end == "FAIL"}
    refused = Counter(reason[1] for reason in reasons.values() if reason)
    failed = [name for name, reason in reasons.items() if reason is None]
    with capsys.disabled():
        print(f"\n{listed} {version}: {Counter(found.values())}, not offered: {dict(refused)}")
        for name in filter(expected.is_failing, names):
            print(f"  listed as failing: {name}: {found.get(name)}")
    assert set(names) == found.keys()
    unexpected = [name for name in failed if not expected.is_failing(name)]
    assert unexpected == [], "\n\n".join(texts_of[name] for name in unexpected)


def run(folder: Path, tester: str, names: list[str]) -> str:
    """What the tests of these names say."""
    only = f"^({'|'.join(names)})$"
    done = subprocess.run(
        ["./tests", "-test.v", f"-test.timeout={RUN_TIMEOUT_S:.0f}s", f"-test.run={only}"],
        cwd=folder,
        env={**os.environ, "TESTER_NATS_URL": tester},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        timeout=RUN_TIMEOUT_S,
    )
    return done.stdout


def outcomes(said: str) -> dict[str, str]:
    """By name; of a test that was run again, the last."""
    return {match[2]: match[1] for line in said.splitlines() if (match := _END.match(line))}


def said_by(said: str) -> dict[str, str]:
    """What each test printed, by name."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in said.splitlines():
        if match := _BEGIN.match(line):
            lines = found[match[1]] = []
        lines.append(line)
    return {name: "\n".join(of_test) for name, of_test in found.items()}
