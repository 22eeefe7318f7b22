"""The benchmarks of clusters measure what they say, and run; no figure is judged."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from benchmarks.catalogue import CLUSTERS as CASES
from benchmarks.gap import Prober

ROOT = Path(__file__).parents[2]
AWAY_S = 1.0


def test_a_gap_is_as_long_as_nobody_acks(nats_server: Any) -> None:
    address = nats_server.url.removeprefix("nats://")
    command = [sys.executable, "-m", "benchmarks.responder", address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as responder:
        assert responder.stdout is not None
        assert responder.stdout.readline() == b"ready\n"
        prober = Prober(address, "bench.gap")

        def strike() -> None:
            os.kill(responder.pid, signal.SIGSTOP)
            threading.Timer(AWAY_S, os.kill, (responder.pid, signal.SIGCONT)).start()

        try:
            # On a busy machine the blow is over a while before the clock is read. An ack of what was published before
            # the blow would come at once.
            assert AWAY_S / 2 <= prober.gap_s(strike) < AWAY_S + 2
        finally:
            prober.close()
            responder.kill()


@pytest.mark.slow
def test_every_case_gives_figures_for_every_variant(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks.clusters", "--quick", "--rounds", "1"]
    command += ["--json", str(figures), "--dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = json.loads(figures.read_text())["cases"]
    for case in (case for case in CASES if not case.missing()):
        assert set(runs[case.name]) == {variant.label for variant in case.variants}
