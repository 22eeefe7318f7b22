"""nats.go's own tests, with nodes in the place of the nats-servers that they ask for.

``nats-go.toml`` (without JetStream), ``nats-go-js.toml`` (JetStream by the older interface) and
``nats-go-jetstream.toml`` (by the newer one) list which of them, and which fail for a known reason.
What wants a setting that nodes do not have is refused by ``nats_tester``, and counted by its reason.
"""

import contextlib
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

from tests.peers import go_modules
from tests.peers.expectations import Expectations
from tests.peers.nats_tester import NOT_OFFERED
from tests.peers.sources import NoSourcesError, Peer, sources

pytestmark = [pytest.mark.peers, pytest.mark.slow]

VERSION: Final = "1.55.0"
NATS_GO: Final = Peer("nats.go", "https://github.com/nats-io/nats.go", ".")
RUN_TIMEOUT_S: Final = 2_400.0
AT_ONCE: Final = 2
"""So many processes share the tests: they wait most of the time."""

_REFUSAL = re.compile(rf"{NOT_OFFERED}: (.+)")


def built(package: str) -> tuple[Path, str]:
    """The folder of the tests, with their program in it, and of which version they are."""
    try:
        root, version, _ = sources(NATS_GO, VERSION)
    except NoSourcesError as error:
        pytest.skip(f"the tests of nats.go cannot be had: {error}")
    found = root / package
    try:
        go_modules.build(found, f"-modfile={root / 'go_test.mod'}", "-tags=internal_testing")
    except NoSourcesError as error:
        pytest.skip(f"the tests of nats.go cannot be built: {error}")
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
    collected = go_modules.names_in(folder, expected.files)
    names = [name for name in collected if expected.place(name) != "left out"]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        shares = [names[number::AT_ONCE] for number in range(AT_ONCE)]
        said = "".join(threads.map(partial(run, folder), testers, shares))
    again = [name for name, outcome in go_modules.outcomes(said).items() if outcome == "FAIL"]
    if again := [it for it in again if not _REFUSAL.search(go_modules.said_by(said)[it])]:
        said += run(folder, testers[0], again)  # some depend on timing
    found, texts_of = go_modules.outcomes(said), go_modules.said_by(said)
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
    return go_modules.run(folder, names, {"TESTER_NATS_URL": tester}, RUN_TIMEOUT_S)
