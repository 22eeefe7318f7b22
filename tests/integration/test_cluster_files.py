"""Every kind of file, lost or changed in every way, on leader and follower, running and stopped.

Three real nodes, and stock clients that were acknowledged each record. Afterwards each record is
read at its offset, from whoever leads and from the struck node when it leads, and all replicas have
the same bytes; or the node has said what is wrong, and ``UNDETECTED`` names the case.
"""

import asyncio
import itertools
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.integration.struck_files import OTHERS, PATIENCE_S, SMALL, VICTIM, Case, Field
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import wait_until

SEGMENTS = ("first", "middle", "active")
SMALL_FILES = ("*.index", "*.timeindex", "leader-epoch-checkpoint", "segment-manifest")
WHOLE = ("partition.metadata", "folder")
LOST = ("removed", "emptied", "older")
"""What may befall those: another stream's mark is refused until somebody mends it by hand."""
BLOWS = ("removed", "emptied", "cut", "flipped", "older", "swapped", "alike")
ROLES = ("leader", "follower")
STATES = ("running", "stopped", "killed")

UNDETECTED = {("active", "alike")}
"""Another log's batches with the very same offsets and sizes have right checksums, too. Those of a
sealed segment are known by the checksums of the first and the last one."""


def cases(kinds: Sequence[str], blows: Sequence[str] = BLOWS) -> Iterator[Case]:
    yield from itertools.starmap(Case, itertools.product(kinds, blows, ROLES, STATES))


def judge(field: Field, names: Sequence[str]) -> None:
    """The struck replicas are as good as any other, or known not to be."""
    known = [it for it in names if field.cases[it][:2] in UNDETECTED]
    well = [it for it in names if it not in known]
    assert field.wait_whole(well) == {}
    assert field.unread(well) == {}
    field.lead(VICTIM, well)
    assert field.unread(well) == {}
    if known:
        still = field.wait_whole(known, patience_s=10.0)
        assert still.keys() == {str(field.cases[it]) for it in known}, "found: not UNDETECTED"


def play(field: Field) -> None:
    for state in STATES:
        names = [name for name, case in field.cases.items() if case.state == state]
        if not names:
            continue
        field.lead(OTHERS[0], [it for it in names if field.cases[it].role == "follower"])
        field.lead(VICTIM, [it for it in names if field.cases[it].role == "leader"])
        match state:
            case "stopped":
                assert field.victim.stop() == 0
            case "killed":
                field.victim.kill()
        field.strike(state)
        if state != "running":
            field.cluster.start(VICTIM)
        judge(field, names)
    judge(field, list(field.cases))  # also after restarts
    assert field.victim.stop() == 0
    undetected = [name for name, case in field.cases.items() if case[:2] in UNDETECTED]
    assert field.findings(besides=undetected) == []
    field.cluster.start(VICTIM)
    assert "every replica is in sync" in field.cluster.command("cluster", "check")
    print("nothing to strike:", *map(str, field.nothing_to_strike), sep="\n  ")


async def run(tmp_path: Path, chosen: Sequence[Case]) -> None:
    with Cluster(tmp_path / "cluster", settings=SMALL) as cluster:
        field = Field(cluster, chosen, tmp_path / "copies")
        await field.fill()
        await asyncio.to_thread(play, field)


async def test_a_few(tmp_path: Path) -> None:
    few = [
        Case("first", "removed", "leader", "stopped"),
        Case("middle", "emptied", "follower", "stopped"),
        Case("active", "older", "leader", "stopped"),
        Case("folder", "removed", "follower", "stopped"),
    ]
    await run(tmp_path, few)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*SEGMENTS, *SMALL_FILES, *WHOLE])
async def test_of_a_partition(tmp_path: Path, kind: str) -> None:
    await run(tmp_path, list(cases([kind], LOST if kind in WHOLE else BLOWS)))


OF_NODE = (
    "node.json",
    "high-watermark-checkpoint",
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "*-checkpoint",
    "metadata/quorum-state",
    "metadata/*-checkpoint",
    "metadata/log/*.log",
    "metadata/log/leader-epoch-checkpoint",
)
NEEDED = ("node.json", "metadata")
"""Without these a node may refuse to start; what they say is known elsewhere."""
PURGED = 20
"""So many records of each stream, where a checkpoint is struck that may have to tell of them: the
first segment, and a part of the second one.
"""
NODE_BLOWS = ("removed", "emptied", "cut", "flipped", "older", "swapped")


def play_node(field: Field, kind: str) -> None:
    """One blow after the other to the same node; where it refuses it is mended by the book."""
    node, names = field.victim, list(field.cases)
    copy = field.copies / "whole"
    for blow, is_killed in itertools.product(NODE_BLOWS, (False, True)):
        field.wait_checkpointed()  # else a node that was killed early has none to strike
        field.lead(VICTIM, names)
        if is_killed:
            node.kill()
        else:
            assert node.stop() == 0
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(node.data_dir, copy, ignore=shutil.ignore_patterns("reserve"))
        struck = field.strike_node(kind, blow)
        assert struck or blow in ("older", "swapped"), "those may be the same"
        refusal = starts_or_refuses(node)
        if refusal:
            assert kind.startswith(NEEDED), refusal
            assert str(node.data_dir) in refusal
            mend(node, kind, copy)
            field.cluster.start(VICTIM)
        print(kind, blow, "killed" if is_killed else "stopped", refusal or "started")
        assert field.wait_whole(names) == {}
        assert field.unread(names) == {}
        field.lead(VICTIM, names)
        assert field.unread(names) == {}
    assert "every replica is in sync" in field.cluster.command("cluster", "check")


def starts_or_refuses(node: NodeProcess) -> str:
    """The line with which it ends; empty: it is ready."""
    before = len(node.log_text())
    node.spawn()

    def is_decided() -> bool:
        return not node.is_running() or node.http("/readyz")[0] == 200

    wait_until(is_decided, "it starts or refuses", PATIENCE_S)
    said = node.log_text()[before:]
    assert "Traceback" not in said, said
    return "" if node.is_running() else said.splitlines()[-1]


def mend(node: NodeProcess, kind: str, copy: Path) -> None:
    """Metadata come from the other nodes; what is in ``node.json`` is known to the operator."""
    if kind.startswith("metadata"):
        shutil.rmtree(copy / "metadata")
        (node.data_dir / "metadata").rename(copy / "metadata")
    else:
        shutil.copy(copy / "node.json", node.data_dir / "node.json")


@pytest.mark.slow
@pytest.mark.parametrize("kind", OF_NODE)
@pytest.mark.parametrize("role", ["voter", "observer"])
async def test_of_a_node(tmp_path: Path, kind: str, role: str) -> None:
    cluster = Cluster(tmp_path / "cluster", nodes=4, settings=SMALL)
    voters = (VICTIM, *OTHERS) if role == "voter" else (*OTHERS, 4)
    cluster.voters = [cluster[it].voter for it in voters]
    for node in cluster.nodes.values():
        node.configure(cluster.settings_of(node))
    with cluster:
        field = Field(cluster, [Case(kind, "", "leader", "")] * 3, tmp_path / "copies")
        await field.fill()
        if kind in ("log-start-offset-checkpoint", "*-checkpoint"):
            await asyncio.to_thread(field.purge, PURGED)
        await asyncio.to_thread(play_node, field, kind)
