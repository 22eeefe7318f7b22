"""The benchmarks themselves still run; no figure is judged."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.catalogue import NODE as CASES

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_every_case_gives_figures_for_every_variant(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks", "--quick", "--rounds", "1"]
    command += ["--json", str(figures), "--dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = json.loads(figures.read_text())["cases"]
    for case in CASES:
        assert set(runs[case.name]) == {variant.label for variant in case.variants}
        for label, measurements in runs[case.name].items():
            missing = {
                metric.key
                for run in measurements
                for metric in case.metrics
                if run.get(metric.key, 0) <= 0
            }
            assert not missing, (case.name, label)
