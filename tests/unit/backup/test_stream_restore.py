"""What a stream is restored as."""

from uuid import UUID

import pytest

from streamlog.backup.manifest import StreamBackup
from streamlog.backup.stream_restore import _wanted
from streamlog.metadata.stream.stream_config import StreamConfig


@pytest.mark.parametrize(
    ("kept", "restored"),
    [("limits", "limits"), ("workqueue", "workqueue"), ("interest", "limits")],
)
def test_stream_is_not_emptied_because_its_consumers_are_not_restored(
    kept: str, restored: str
) -> None:
    config = StreamConfig.of(name="s", retention=kept, retention_ms=60_000)
    backup = StreamBackup(stream_id=UUID(int=1), config=config, created_ms=0)
    wanted = _wanted(backup, None, (), None)
    assert wanted == config.changed(retention=restored)
