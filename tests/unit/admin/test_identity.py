"""The secrets by which nodes know each other over NATS, out of files."""

from pathlib import Path

import pytest

from streamlog.admin.identity import check_node_secrets, node_secrets_of
from streamlog.config import AccessSection, NodeSection, SaslSection, Settings
from streamlog.errors import ConfigError
from streamlog.model import NodeId

LONG = "a secret of many letters"


def settings(folder: Path, own: Path | None, passwords: Path | None = None) -> Settings:
    return Settings.model_construct(
        node=NodeSection(id=NodeId(1), data_dir=folder),
        access=AccessSection(node_secret_file=own),
        sasl=SaslSection.model_construct(node_password_file=passwords),
    )


def test_whoever_signs_takes_the_first_line_and_knows_all(tmp_path: Path) -> None:
    own, passwords = tmp_path / "own", tmp_path / "passwords"
    own.write_text(f"{LONG} \n\n{LONG} of old\n")
    passwords.write_text("short\n")
    known = node_secrets_of(settings(tmp_path, own, passwords))
    assert list(known()) == [LONG.encode(), f"{LONG} of old".encode()]
    own.write_text(f"{LONG} of now\n")
    assert list(known()) == [f"{LONG} of now".encode()], "without a restart"
    assert list(node_secrets_of(settings(tmp_path, None, passwords))()) == [b"short"]
    assert list(node_secrets_of(settings(tmp_path, None))()) == []


@pytest.mark.parametrize("text", ["", "short\n", "fifteen-letters\n\n", None])
def test_a_file_without_a_secret_that_is_long_enough(tmp_path: Path, text: str | None) -> None:
    own = tmp_path / "own"
    if text is not None:
        own.write_text(text)
    told = settings(tmp_path, own)
    assert list(node_secrets_of(told)()) == []
    with pytest.raises(ConfigError, match=r"^access\.node_secret_file: .* 16 or more characters; "):
        check_node_secrets(told)
    own.write_text("sixteen-letters!\n")
    check_node_secrets(told)
    assert list(node_secrets_of(told)()) == [b"sixteen-letters!"]


def test_without_a_file_nothing_is_wrong(tmp_path: Path) -> None:
    check_node_secrets(settings(tmp_path, None))
