"""Every kind of file, lost or changed in every way, on leader and follower, running and stopped.

Three real nodes, and stock clients that were acknowledged each record. Afterwards each record is
read at its offset, from whoever leads and from the struck node when it leads, and all replicas have
the same bytes; or the node has said what is wrong, and ``UNDETECTED`` names the case.
"""

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.struck_files import OTHERS, SMALL, VICTIM, Case, Field

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
