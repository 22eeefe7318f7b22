"""A soak's samples as curves."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.soak.samples import Sample

PANELS: Final = (
    ("resident_mib", "memory, MiB"),
    ("open_files", "open files"),
    ("threads", "threads"),
    ("files", "files on disk"),
    ("disk_mib", "disk, MiB"),
)
COLOURS: Final = {1: "tab:blue", 2: "tab:orange", 3: "tab:green"}


def draw(samples: Sequence[Sample], path: Path) -> None:
    """Each life of a node is a line; a dotted one is a fault."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(len(PANELS) + 1, 1, figsize=(11, 14), sharex=True)
    for axis, (name, title) in zip(axes, PANELS, strict=False):
        lives: dict[tuple[int, int, int], list[tuple[float, float]]] = {}
        for it in samples:
            for node, of_node in it.nodes.items():
                point = (it.at_s / 3_600, float(getattr(of_node, name)))
                lives.setdefault((node, it.piece, of_node.pid), []).append(point)
        named: set[int] = set()
        for (node, _, _), points in sorted(lives.items()):
            label = None if node in named else f"node {node}"
            named.add(node)
            axis.plot(*zip(*points, strict=True), color=COLOURS[node], linewidth=1, label=label)
        _finish(axis, title, samples)
    axes[0].legend(loc="upper left", ncols=3, frameon=False)
    for name, colour in (("p50_ms", "tab:blue"), ("p99_ms", "tab:red")):
        points = [
            (it.at_s / 3_600, value) for it in samples if (value := getattr(it, name)) is not None
        ]
        if points:
            label = name.removesuffix("_ms")
            axes[-1].plot(*zip(*points, strict=True), color=colour, linewidth=1, label=label)
            axes[-1].set_yscale("log")
    _finish(axes[-1], "acknowledgement, ms", samples)
    axes[-1].legend(loc="upper left", ncols=2, frameon=False)
    axes[-1].set_xlabel("hours")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _finish(axis: Any, title: str, samples: Sequence[Sample]) -> None:
    axis.set_title(title, loc="left", fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
    if not title.startswith("ack"):
        axis.set_ylim(bottom=0)
    for it in samples:
        if it.faults:
            axis.axvline(it.at_s / 3_600, color="0.8", linewidth=0.5, linestyle=":", zorder=0)
