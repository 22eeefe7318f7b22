from pathlib import Path

import pytest

from benchmarks.scale import CURVES, draw

pytest.importorskip("matplotlib")


def point(partitions: int, replicas: int) -> dict[str, float]:
    costs = {curve.key: partitions / 100 * replicas for curve in CURVES}
    return {"partitions": partitions, "replicas": replicas, **costs}


def test_points_of_several_runs_are_drawn(tmp_path: Path) -> None:
    points = [point(1_000, 1), point(10_000, 1), point(1_000, 3)]
    points.append({"partitions": 9, "replicas": 3})
    points[0]["idle_percent"] = 0.0
    draw(points, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_measured_is_no_plot(tmp_path: Path) -> None:
    draw([{"partitions": 9, "replicas": 3}], tmp_path / "plot.png")
    assert not (tmp_path / "plot.png").exists()
