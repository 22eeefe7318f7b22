from pathlib import Path

import pytest

from streamlog.config import SecretFile
from streamlog.errors import ConfigError

LONG = b"sixteen-letters!"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "secrets"


def test_lines_that_are_long_enough_in_order(path: Path) -> None:
    path.write_bytes(b" %b \r\n\nfifteen-letters\n%b2" % (LONG, LONG))
    file = SecretFile(path, key="http.token_file", noun="token")
    assert file.secrets() == (LONG, LONG + b"2")
    file.check()
    path.write_bytes(LONG[::-1])
    assert file.secrets() == (LONG[::-1],), "read anew"
    assert SecretFile(path, key="k", noun="n", bytes_min=17).secrets() == ()


def test_a_file_that_cannot_be_used_is_one_line_without_what_is_in_it(path: Path) -> None:
    file = SecretFile(path, key="http.token_file", noun="token")
    said = f"http.token_file: {path} has no token of 16 or more characters; write one a line"
    for content in (None, b"", b"hunter2\n"):
        if content is not None:
            path.write_bytes(content)
        assert file.secrets() == ()
        with pytest.raises(ConfigError) as raised:
            file.check()
        assert str(raised.value).startswith(said)
        assert "hunter2" not in str(raised.value)
