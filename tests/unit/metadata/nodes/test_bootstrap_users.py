import stat
from pathlib import Path

import pytest

from streamlog.errors import ConfigError
from streamlog.metadata.image.credential import Credentials, StoredCredential
from streamlog.metadata.nodes.bootstrap_users import add_bootstrap_user, read_bootstrap_users

ONE: Credentials = {
    "SCRAM-SHA-256": StoredCredential(
        salt="c2FsdA==", iterations=8192, stored_key="c3RvcmVk", server_key="c2VydmVy"
    )
}


def test_users_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "first"
    add_bootstrap_user(path, "zoë", ONE)
    add_bootstrap_user(path, "admin", ONE)
    add_bootstrap_user(path, "admin", ONE)
    assert read_bootstrap_users(path) == {"admin": ONE, "zoë": ONE}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [it.name for it in tmp_path.iterdir()] == ["first"]


@pytest.mark.parametrize("content", [b"hunter2", b"{}", b'{"name":"a","credentials":{"x":1}}'])
def test_what_is_no_user_is_told_by_its_line_and_not_shown(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "first"
    add_bootstrap_user(path, "a", ONE)
    path.write_bytes(path.read_bytes() + content)
    with pytest.raises(ConfigError, match="line 2 is no user") as caught:
        read_bootstrap_users(path)
    assert "hunter2" not in str(caught.value)


def test_a_file_that_cannot_be_had_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.bootstrap_file: .*nowhere"):
        read_bootstrap_users(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="--bootstrap"):
        add_bootstrap_user(tmp_path / "nowhere" / "first", "a", ONE)
    (tmp_path / "large").write_bytes(b"\n" * ((1 << 20) + 1))
    with pytest.raises(ConfigError, match="more than"):
        read_bootstrap_users(tmp_path / "large")
