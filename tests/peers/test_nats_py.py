"""nats-py's own tests of NATS without JetStream: what they start as nats-server is a node.

``nats-py-core.toml`` lists what is left out, and what fails for a known reason.
"""

import os
from importlib import metadata
from pathlib import Path
from typing import Final

import pytest

from tests.peers import nats_stand_in
from tests.peers.expectations import Expectations, judge
from tests.peers.sources import PEERS, NoSourcesError, sources
from tests.peers.suite import Suite
from tests.peers.test_peers import told

pytestmark = [pytest.mark.peers, pytest.mark.slow]

PACKAGE: Final = "nats-py"
TOKENS: Final = {
    "nats://token@": "nats://token-of-16-letters@",
    'token="token"': 'token="token-of-16-letters"',
    '"token": "token"': '"token": "token-of-16-letters"',
    'return "token"': 'return "token-of-16-letters"',
    'token="secret"': 'token="secret-of-16-letters"',
}
"""A node takes none of less than 16 characters."""


def test_nats_pys_core_tests_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    peer = PEERS[PACKAGE]
    try:
        found = sources(peer, metadata.version(PACKAGE))
    except NoSourcesError as error:
        pytest.skip(f"the tests of {PACKAGE} cannot be had: {error}")
    expected = Expectations.read(Path(__file__).with_name("nats-py-core.toml"))
    programs = nats_stand_in.install(tmp_path / "programs")
    suite = Suite(
        peer,
        found,
        expected,
        tmp_path / "suite",
        fixtures="nats_py_core_fixtures",
        environment={"PATH": f"{programs}:{os.environ['PATH']}"},
    )
    suite.replace(TOKENS)
    suite.collect()
    suite.run("cluster", [])
    verdict = judge(expected, suite.collected, suite.outcomes)
    with capsys.disabled():
        print(f"\n{told(PACKAGE, found, verdict)}")
    assert verdict.passed, "nothing was run"
    assert verdict.failed == [], "\n\n".join(
        f"{test}:\n{suite.details.get(test, '')}" for test in verdict.failed
    )
