"""``python -m benchmarks.scale``: what three nodes cost with more and more partitions.

For each count of partitions a new cluster: how fast they are made, memory and open files, a cluster
at rest, kill -9 of the controller, a rolling restart, the metadata as Kafka clients load it and as
snapshots keep it. The figures go to a JSON file, with a plot beside it.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple
from uuid import UUID

from benchmarks import machine, report
from benchmarks.connection import VOID, BenchmarkError
from benchmarks.processes import cpu_seconds, resident_mib
from benchmarks.streamlog_trio import StreamlogTrio
from benchmarks.trio import MEMBERS, ask_again_and_again, ask_until_answered
from streamlog.log.storage.disk import OsDisk
from streamlog.metadata.commands import Command, CreateStream, FenceNode
from streamlog.metadata.controller import Decision, decide
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import NodeRegistered
from streamlog.metadata.image.snapshot import read_snapshot, write_snapshot
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId
from tools.nodes.node_process import NodeProcess

RESULTS: Final = Path(__file__).parent / "results"
COUNTS: Final = "1000,10000,100000"
STREAM_PARTITIONS: Final = 100
KILLS: Final = 3
IDLE_S: Final = 30.0
READY_S: Final = 900.0
WHOLE_S: Final = 900.0
SETTLE_S: Final = 5.0
LOOK_S: Final = 0.1
MIB: Final = 1 << 20
FLAT_MS: Final = 1_000.0
"""A new controller decides within this time, however many partitions there are."""

COLOURS: Final = {1: "#d9a05b", 2: "#6aa56a", 3: "#3f78a8"}
"""By the number of replicas."""
LINEAR_MAX: Final = 8
"""A curve that grows less is drawn from zero on."""

Point = dict[str, float]


class Curve(NamedTuple):
    """One panel of the plot."""

    key: str
    title: str
    bound: float | None = None


CURVES: Final = (
    Curve("create_per_s", "partitions created a second"),
    Curve("decides_ms", "kill -9 of the controller: ms until\nthe next stream is created", FLAT_MS),
    Curve("leads_ms", "... ms until every partition is led"),
    Curve("resident_kib", "KiB of memory per replica"),
    Curve("open_files", "open files of a node"),
    Curve("idle_percent", "% of a core, a node at rest"),
    Curve("stop_s", "rolling restart: s to stop a node"),
    Curve("ready_s", "... s until it is ready again"),
    Curve("whole_s", "... s until all replicas are in sync"),
    Curve("load_ms", "ms to load all metadata (Kafka)"),
    Curve(
        "step_ms", "a node dies: processor ms of the controller\nbefore its next command", FLAT_MS
    ),
    Curve("fence_ms", "... processor ms until all of its\npartitions are decided about"),
    Curve("snapshot_mib", "MiB of a metadata snapshot"),
    Curve("write_ms", "processor ms to write that snapshot"),
    Curve("read_ms", "... to read it"),
    Curve("write_mib", "MiB of memory to write it"),
)


def main() -> int:
    options = _parse()
    if options.draw:
        found = [it for path in options.draw for it in json.loads(path.read_text())["points"]]
        draw(found, options.draw[0].with_suffix(".png"))
        return 0
    directory = Path(tempfile.mkdtemp(prefix="streamlog-scale-", dir=options.dir))
    facts = machine.describe(directory)
    points: list[Point] = []
    failure = ""
    try:
        for partitions in map(int, options.partitions.split(",")):
            point: Point = {"partitions": partitions, "replicas": options.replicas}
            points.append(point)
            try:
                _measure_image(point, options.per_stream, directory)
                if options.image:
                    continue
                _measure(point, directory / str(partitions), options)
            except (*VOID, KeyboardInterrupt) as error:
                failure = f"{partitions} partitions: {error or 'interrupted'}"
                break
    finally:
        if not options.keep:
            shutil.rmtree(directory, ignore_errors=True)
    path = options.json or report.results_file(RESULTS, options.name)
    limits = {"stopped": failure} if failure else {}
    path.write_text(json.dumps({"machine": facts, **limits, "points": points}, indent=1) + "\n")
    draw(points, path.with_suffix(".png"))
    print(f"all measurements are in {path}")
    if failure:
        print(f"void: {failure}", file=sys.stderr)
    return 1 if failure else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--partitions", default=COUNTS, help="of all streams; a cluster for each")
    parser.add_argument("--per-stream", type=int, default=STREAM_PARTITIONS)
    parser.add_argument("--replicas", type=int, default=1, choices=(1, 2, 3))
    parser.add_argument("--kills", type=int, default=KILLS, help="of the controller")
    parser.add_argument("--idle", type=float, default=IDLE_S, help="seconds; 0 leaves it out")
    parser.add_argument("--no-restart", action="store_true", help="no rolling restart")
    parser.add_argument("--image", action="store_true", help="no nodes: the metadata alone")
    parser.add_argument("--name", default="scale", help="ends the name of the file of results")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where the nodes keep their data")
    parser.add_argument(
        "--draw", type=Path, nargs="+", metavar="FILE", help="only draw the plot of these results"
    )
    parser.add_argument("--keep", action="store_true", help="keep the nodes' folders")
    return parser.parse_args()


def _measure(point: Point, directory: Path, options: argparse.Namespace) -> None:
    trio = StreamlogTrio(directory)
    try:
        for step in (_create, _hold, _idle, _kill, _restart, _metadata):
            began, known = time.perf_counter(), set(point)
            step(trio, point, options)
            told = {key: round(value, 2) for key, value in point.items() if key not in known}
            took = round(time.perf_counter() - began, 1)
            print(
                json.dumps({"partitions": point["partitions"], **told, "took_s": took}), flush=True
            )
    finally:
        trio.stop()


# One step after the other


def _create(trio: StreamlogTrio, point: Point, options: argparse.Namespace) -> None:
    partitions, replicas = int(point["partitions"]), options.replicas
    each = min(options.per_stream, partitions)
    before = {node.number: resident_mib([node.pid]) for node in trio.nodes}
    point["resident_mib_empty"] = median(before.values())

    metadata = {"streamlog.partitions": str(each)}
    began = time.perf_counter()
    for number in range(partitions // each):
        name = f"s{number}"
        config = {"name": name, "subjects": [name], "num_replicas": replicas}
        ask_until_answered(trio, f"STREAM.CREATE.{name}", {**config, "metadata": metadata})
    point["create_s"] = time.perf_counter() - began
    _wait(trio.nodes, partitions, _whole)
    point["create_whole_s"] = time.perf_counter() - began
    point["create_per_s"] = partitions / point["create_whole_s"]


def _hold(trio: StreamlogTrio, point: Point, options: argparse.Namespace) -> None:
    """What a node holds: memory, open files."""
    time.sleep(SETTLE_S)
    mine = point["partitions"] * options.replicas / len(MEMBERS)
    held = [resident_mib([node.pid]) for node in trio.nodes]
    point["resident_mib"] = max(held)
    point["resident_kib"] = 1024 * (median(held) - point["resident_mib_empty"]) / mine
    point["open_files"] = max(
        len(list(Path(f"/proc/{node.pid}/fd").iterdir())) for node in trio.nodes
    )
    point["disk_mib"] = max(_disk_mib(node.data_dir) for node in trio.nodes)


def _idle(trio: StreamlogTrio, point: Point, options: argparse.Namespace) -> None:
    if not options.idle:
        return
    time.sleep(SETTLE_S)
    before = {node.number: cpu_seconds([node.pid]) for node in trio.nodes}
    time.sleep(options.idle)
    used = [cpu_seconds([node.pid]) - before[node.number] for node in trio.nodes]
    point["idle_percent"] = 100 * max(used) / options.idle


def _kill(trio: StreamlogTrio, point: Point, options: argparse.Namespace) -> None:
    """kill -9 of the controller, a few times."""
    partitions = int(point["partitions"])
    decides, leads = list[float](), list[float]()
    for number in range(options.kills):
        victim = trio.controller()
        others = [node for node in trio.nodes if node.number != victim]
        name = f"after-{number}"
        config = {
            "name": name,
            "subjects": [name],
            "storage": "file",
            "num_replicas": min(options.replicas, 2),
        }
        os.kill(trio.pid(victim), signal.SIGKILL)
        struck = time.perf_counter()
        try:
            ask_again_and_again(trio, f"STREAM.CREATE.{name}", config, without=victim)
            decides.append(1000 * (time.perf_counter() - struck))
            if options.replicas > 1:
                _wait(others, partitions + number + 1, _led)
                leads.append(1000 * (time.perf_counter() - struck))
        finally:
            trio.node(victim).start(READY_S)
        _wait(trio.nodes, partitions + number + 1, _whole)
    if decides:
        point["decides_ms"], point["decides_ms_worst"] = median(decides), max(decides)
    if leads:
        point["leads_ms"] = median(leads)


def _restart(trio: StreamlogTrio, point: Point, options: argparse.Namespace) -> None:
    """One node after the other, each when the one before it is in sync again."""
    if options.no_restart:
        return
    led = sum(node.metric("streamlog_partitions_led") for node in trio.nodes)
    steps: dict[str, list[float]] = {"stop_s": [], "ready_s": [], "whole_s": []}
    for node in trio.nodes:
        began = time.perf_counter()
        code = node.stop(READY_S)
        if code:
            raise BenchmarkError(f"node {node.number} ended with {code}")
        steps["stop_s"].append(time.perf_counter() - began)
        began = time.perf_counter()
        node.start(READY_S)
        steps["ready_s"].append(time.perf_counter() - began)
        _wait(trio.nodes, int(led), _whole)
        steps["whole_s"].append(time.perf_counter() - began)
    point.update({key: max(values) for key, values in steps.items()})


def _metadata(trio: StreamlogTrio, point: Point, options: argparse.Namespace) -> None:
    """As clients load it."""
    began = time.perf_counter()
    trio.nodes[0].view(READY_S)
    point["load_ms"] = 1000 * (time.perf_counter() - began)


# The metadata alone, with three replicas of each partition, in this process and its time


def _measure_image(point: Point, per_stream: int, directory: Path) -> None:
    nodes = frozenset(NodeId(member) for member in MEMBERS)
    image = _image(nodes, int(point["partitions"]), per_stream)
    _snapshot(point, image, directory / "snapshot")
    steps = list[float]()
    unfinished = True
    while unfinished:
        began = time.process_time()
        command = FenceNode(node_id=NodeId(1), node_epoch=image.nodes[NodeId(1)].epoch)
        decision = _decided(image, command, nodes - {1})
        image = _after(image, decision)
        unfinished = decision.unfinished
        steps.append(1000 * (time.process_time() - began))
    point["step_ms"], point["step_ms_worst"] = median(steps), max(steps)
    point["fence_ms"] = sum(steps)
    print(json.dumps({key: round(value, 2) for key, value in point.items()}), flush=True)


def _image(nodes: frozenset[NodeId], partitions: int, per_stream: int) -> MetadataImage:
    image = MetadataImage("scale")
    for node in sorted(nodes):
        record = NodeRegistered(node_id=node, incarnation=UUID(int=node), host="h", port=1)
        image = image.apply(record, offset=image.offset, epoch=1)
    each = min(per_stream, partitions)
    for number in range(partitions // each):
        config = StreamConfig.of(name=f"s{number}", partitions=each, replicas=len(nodes))
        image = _after(image, _decided(image, CreateStream(config=config), nodes))
    return image


def _decided(image: MetadataImage, command: Command, live: frozenset[NodeId]) -> Decision:
    new_id = UUID(int=image.offset)
    return decide(image, command, now_ms=0, new_id=new_id, live=live, heard_of=live)


def _after(image: MetadataImage, decision: Decision) -> MetadataImage:
    return image.apply_all(decision.records, offset=image.offset, epoch=1)


def _snapshot(point: Point, image: MetadataImage, path: Path) -> None:
    file = OsDisk().create(str(path))
    try:
        began = time.process_time()
        write_snapshot(file, image)
        point["write_ms"] = 1000 * (time.process_time() - began)
        point["snapshot_mib"] = file.size() / MIB
        began = time.process_time()
        again = read_snapshot(file, str(path))
        point["read_ms"] = 1000 * (time.process_time() - began)
        if again != image:
            raise BenchmarkError("a snapshot is read as another image")
        tracemalloc.start()
        write_snapshot(file, image)
        point["write_mib"] = tracemalloc.get_traced_memory()[1] / MIB
        tracemalloc.stop()
    finally:
        file.close()


# Waiting


def _led(nodes: Sequence[NodeProcess], partitions: int) -> bool:
    return _sum(nodes, "streamlog_partitions_led") >= partitions


def _whole(nodes: Sequence[NodeProcess], partitions: int) -> bool:
    return _led(nodes, partitions) and not _sum(nodes, "streamlog_partitions_under_replicated")


def _sum(nodes: Sequence[NodeProcess], metric: str) -> float:
    total = 0.0
    for node in nodes:
        with suppress(KeyError):  # it does not answer just now
            total += node.metric(metric)
    return total


def _wait(
    nodes: Sequence[NodeProcess],
    partitions: int,
    wanted: Callable[[Sequence[NodeProcess], int], bool],
) -> None:
    deadline = time.monotonic() + WHOLE_S
    while not wanted(nodes, partitions):
        if time.monotonic() > deadline:
            led = _sum(nodes, "streamlog_partitions_led")
            raise BenchmarkError(f"{led:.0f} of {partitions} partitions are led after {WHOLE_S} s")
        time.sleep(LOOK_S)


def _disk_mib(folder: Path) -> float:
    """Blocks, folders included."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in (".", *names):
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(path, name)).st_blocks * 512  # noqa: PTH118
    return total / MIB


# The plot


def draw(points: Sequence[Mapping[str, float]], path: Path) -> None:
    """A panel for each cost over the count of partitions; scales are logarithmic where it grows."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no plot: matplotlib is missing; pip install '.[dev]'", file=sys.stderr)
        return
    curves = [it for it in CURVES if any(it.key in point for point in points)]
    if not curves:
        return
    columns = 3
    rows = -(-len(curves) // columns)
    figure = Figure(figsize=(10.5, 2.5 * rows), dpi=130, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis, curve in zip(axes.flat, curves, strict=False):
        _panel(axis, curve, points)
    axes.flat[0].legend(fontsize=8, frameon=False, loc="lower left")
    for axis in axes.flat[len(curves) :]:
        axis.set_visible(False)
    figure.savefig(path, facecolor="white", metadata={"Software": None})


def _panel(axis: Any, curve: Curve, points: Sequence[Mapping[str, float]]) -> None:
    from matplotlib.ticker import NullFormatter

    values = [it[curve.key] for it in points if curve.key in it]
    counts = sorted({it["partitions"] for it in points})
    for replicas, colour in COLOURS.items():
        known = sorted(
            (it["partitions"], it[curve.key])
            for it in points
            if curve.key in it and it["replicas"] == replicas
        )
        if not known:
            continue
        label = f"{replicas} replica" + ("s" if replicas > 1 else "")
        axis.plot(*zip(*known, strict=True), marker="o", markersize=4, color=colour, label=label)
        for count, value in known:
            axis.annotate(
                f"{value:,.3g}" if value < 1000 else f"{value:,.0f}", (count, value), fontsize=8,
                xytext=(0, 5), textcoords="offset points", ha="center", color=colour,
            )  # fmt: skip
    if curve.bound is not None:
        axis.axhline(curve.bound, color="#999999", linestyle="--", linewidth=1)
    top = max([*values, curve.bound or 0])
    axis.set_xscale("log")
    if min(values) > 0 and top / min(values) > LINEAR_MAX:
        axis.set_yscale("log")
        axis.set_ylim(min(values) / 2, top * 3)
    else:
        axis.set_ylim(0, top * 1.25 or 1)
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.set_xlim(counts[0] / 1.8, counts[-1] * 1.8)
    axis.set_xticks(counts, [f"{it:,.0f}" for it in counts], fontsize=8)
    axis.set_xticks([], minor=True)
    axis.tick_params(axis="y", labelsize=8)
    axis.set_title(curve.title, fontsize=9, loc="left", color="#333333")
    axis.grid(visible=True, color="#e8e8e8")
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


if __name__ == "__main__":
    sys.exit(main())
