"""Commands ask the development cluster of this user, where one runs and no other is named."""

import json
from pathlib import Path

import pytest

from streamlog.cli.options import running_dev


def test_it_is_there_while_its_process_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert running_dev.current() is None
    running_dev.write("127.0.0.1:1,127.0.0.1:2")
    assert running_dev.current() == "127.0.0.1:1,127.0.0.1:2"
    told = json.loads(running_dev.path().read_text())
    running_dev.path().write_text(json.dumps({**told, "pid": 2**22 + 1}))
    assert running_dev.current() is None, "it was killed"
    running_dev.remove()
    assert running_dev.path().exists(), "another's is not ours to remove"
    running_dev.write("127.0.0.1:1")
    running_dev.remove()
    assert running_dev.current() is None
    running_dev.path().write_text("[]")
    assert running_dev.current() is None
