"""Commands ask the development cluster of this user, where one runs and no other is named."""

import json
from pathlib import Path

import pytest

from streamlog.cli.options import context


def test_it_is_there_while_its_process_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert context.current() is None
    context.write("127.0.0.1:1,127.0.0.1:2")
    assert context.current() == "127.0.0.1:1,127.0.0.1:2"
    told = json.loads(context.path().read_text())
    context.path().write_text(json.dumps({**told, "pid": 2**22 + 1}))
    assert context.current() is None, "it was killed"
    context.remove()
    assert context.path().exists(), "another's is not ours to remove"
    context.write("127.0.0.1:1")
    context.remove()
    assert context.current() is None
    context.path().write_text("[]")
    assert context.current() is None
