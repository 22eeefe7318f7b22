from pathlib import Path
from typing import Any

import pytest

from benchmarks import plot
from benchmarks.case import Case, Figures, Metric, Target, Variant

RATE = Metric("rate", "records/s")
P50 = Metric("p50_ms", "ms, p50", lower_is_better=True)
START = Metric("start_s", "s", digits=1, lower_is_better=True)


def figures() -> Figures:
    wanted = (
        Target(RATE, 2.0),
        Target(RATE, 10.0, beside="slow"),
        Target(P50, 1.0),
        Target(START, 4.0, absolute=True),
    )
    variants: tuple[Variant[Any], ...] = (
        Variant("peer", lambda *_: {}),
        Variant("streamlog, sync=os", lambda *_: {}, wanted),
        Variant("slow", lambda *_: {}),
    )
    gathered = Figures(Case("a", "A case", (RATE, P50, START), variants))
    gathered.add("peer", {"rate": 100.0, "p50_ms": 1.0, "start_s": 1.0})
    gathered.add("streamlog, sync=os", {"rate": 150.0, "p50_ms": 0.5, "start_s": 3.0})
    gathered.add("slow", {"rate": 1.0, "p50_ms": 1.0, "start_s": 1.0})
    return gathered


def test_a_bar_for_each_target() -> None:
    ratio, beside, latency, limit = plot.bars([figures()])
    assert (ratio.label, ratio.ratio, ratio.target, ratio.text) == ("sync=os", 1.5, 2.0, "1.50x")
    assert not ratio.met
    assert (beside.ratio, beside.text, beside.met) == (150.0, "150.00x of slow", True)
    assert (latency.label, latency.ratio, latency.lower_is_better) == ("sync=os, p50", 0.5, True)
    assert (limit.ratio, limit.target, limit.text) == (0.75, 1.0, "3.0 s, allowed 4")


def test_a_chart_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    chart = tmp_path / "results" / "ratios.png"
    plot.draw([figures()], chart)
    assert chart.read_bytes().startswith(b"\x89PNG")


def test_without_targets_there_is_no_chart(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    chart = tmp_path / "ratios.png"
    plot.draw([Figures(Case("b", "Another", (RATE,), ()))], chart)
    assert not chart.exists()
