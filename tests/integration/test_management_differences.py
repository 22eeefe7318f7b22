"""JetStream and streamlog answer the same requests; what differs is known, and why."""

from pathlib import Path

import pytest

from compatibility.cluster import Cluster
from compatibility.management.jetstream import jetstream
from compatibility.management.known import KNOWN, reason
from compatibility.management.play import play
from compatibility.management.scenes import scenes
from compatibility.outcome import Missing

pytestmark = pytest.mark.peers


async def test_every_difference_is_known(tmp_path: Path) -> None:
    try:
        server = jetstream(tmp_path / "jetstream")
        with server as url, Cluster(tmp_path / "nodes", nodes=1) as cluster:
            found = await play(scenes(), url, cluster.nats.url)
    except Missing as missing:
        pytest.skip(str(missing))
    explained = [reason(difference) for difference in found]
    unknown = [str(it) for it, row in zip(found, explained, strict=True) if row is None]
    assert not unknown, "\n".join(unknown[:50])
    stale = [row.what for row in KNOWN if row not in explained]
    assert not stale, "explain nothing"
