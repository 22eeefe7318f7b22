"""nats.java's own tests of NATS without JetStream: what they start as nats-server is a node.

``nats-java-core.toml`` lists the classes, what is left out, and what fails for a known reason.
"""

from collections import Counter
from pathlib import Path

import pytest

from tests.peers.expectations import FAILED, Expectations, judge
from tests.peers.nats_java import VERSION, Run, built, names
from tests.peers.sources import NoSourcesError

pytestmark = [pytest.mark.peers, pytest.mark.slow]


def test_nats_javas_core_tests_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        project = built()
    except NoSourcesError as error:
        pytest.skip(f"the tests of nats.java cannot be had: {error}")
    expected = Expectations.read(Path(__file__).with_name("nats-java-core.toml"))
    run = Run(project, tmp_path)
    collected = [test for name in expected.files for test in names(project, name)]
    wanted = [test for test in collected if expected.place(test) != "left out"]
    outcomes = run.tests(wanted)
    again = [
        test for test in wanted if outcomes[test].kind == FAILED and not expected.is_failing(test)
    ]
    outcomes |= run.tests(again)  # some depend on timing
    verdict = judge(expected, collected, {test: it.kind for test, it in outcomes.items()})
    with capsys.disabled():
        counts = Counter(it.kind for it in outcomes.values())
        print(f"\nnats.java {VERSION}: {len(collected)} tests, {len(wanted)} run, {dict(counts)}")
        for test in verdict.failed:
            print(f"  failed: {test}")
        for test in verdict.failed_as_expected:
            print(f"  failed, as it is listed: {test}")
        for test in verdict.surprises:
            print(f"  passed, though it is listed as failing: {test}")
        for name in verdict.unknown:
            print(f"  listed, but there is no such test: {name}")
    assert outcomes.keys() == set(wanted)
    assert verdict.passed, "nothing was run"
    assert verdict.failed == [], "\n\n".join(
        f"{test}:\n{outcomes[test].said}" for test in verdict.failed
    )
