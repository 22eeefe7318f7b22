"""JetStream and streamlog answer the same requests; what differs is known, and why."""

from pathlib import Path

import pytest

from compatibility.management.known import KNOWN, reason
from compatibility.management.play import play
from compatibility.management.scenes import scenes
from compatibility.management.servers import jetstream, streamlog
from compatibility.outcome import Missing

pytestmark = pytest.mark.peers


async def test_every_difference_is_known(tmp_path: Path) -> None:
    try:
        server = jetstream(tmp_path / "jetstream")
        with server as url, streamlog(tmp_path / "node") as port:
            found = await play(scenes(), url, port)
    except Missing as missing:
        pytest.skip(str(missing))
    explained = [reason(difference) for difference in found]
    unknown = [str(it) for it, row in zip(found, explained, strict=True) if row is None]
    assert not unknown, "\n".join(unknown[:50])
    stale = [row.what for row in KNOWN if row not in explained]
    assert not stale, "explain nothing"
