"""JWTs of operators and accounts in files and folders, and what becomes of them when these change."""

import logging
import os
from pathlib import Path

import pytest

from streamlog.errors import ConfigError
from streamlog.nats.auth import account_files
from streamlog.nats.auth.account_files import AccountSource, OperatorSource
from tests.nats_jwts import AccountJwt, account_key, operator_jwt, operator_key

OPERATOR = operator_key()


def write(path: Path, text: str) -> Path:
    """As a tool that replaces a file does it."""
    made = path.with_suffix(".new")
    made.write_text(text)
    return made.replace(path)


def test_an_operator_is_a_key_a_token_or_a_file(tmp_path: Path) -> None:
    signing, more = operator_key().public, operator_key().public
    token = operator_jwt(OPERATOR, signing_keys=[signing])
    file = write(tmp_path / "operator.jwt", f"-----BEGIN X-----\n{token}\n------END X------\n")
    assert OperatorSource(OPERATOR.public, [more]).operator().keys == {OPERATOR.public, more}
    for place in (token, str(file)):
        assert OperatorSource(place, []).operator().keys == {OPERATOR.public, signing}


def test_an_operator_with_a_new_signing_key_is_read_again(tmp_path: Path) -> None:
    file = write(tmp_path / "operator.jwt", operator_jwt(OPERATOR))
    source = OperatorSource(str(file), [])
    signing = operator_key().public
    write(file, operator_jwt(OPERATOR, signing_keys=[signing]))
    assert source.operator().keys == {OPERATOR.public, signing}


@pytest.mark.parametrize(
    ("operator", "problem"),
    [
        ("no-such-file", "cannot be read"),
        ("eyJ.eyJ.eyJ", "not the JWT of a NATS operator"),
        ("A" * 56, "cannot be read"),
    ],
)
def test_an_operator_that_is_none_is_an_error(operator: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=rf"^nats_listen\.operator: .*{problem}"):
        OperatorSource(operator, [])


def test_a_signing_key_that_is_none_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"^nats_listen\.operator_signing_keys"):
        OperatorSource(OPERATOR.public, ["O123"])


def test_accounts_are_in_tokens_files_and_folders(tmp_path: Path) -> None:
    inline, filed, folded = AccountJwt(), AccountJwt(), AccountJwt()
    file = write(tmp_path / "any-name.jwt", filed.jwt(OPERATOR))
    folder = tmp_path / "accounts"
    folder.mkdir()
    write(folder / f"{folded.key.public}.jwt", folded.jwt(OPERATOR))
    source = AccountSource([inline.jwt(OPERATOR), str(file), str(folder)])
    for each in (inline, filed, folded):
        found = source.account(each.key.public)
        assert found is not None
        assert found.sub == each.key.public
    assert source.account(account_key().public) is None
    assert source.account(f"../{folder.name}/{folded.key.public}") is None


@pytest.mark.parametrize("place", ["no-such-file", "eyJ.x.y"])
def test_an_account_that_is_none_is_an_error(place: str) -> None:
    with pytest.raises(ConfigError, match=r"^nats_listen\.account_jwts"):
        AccountSource([place])


def test_an_account_in_a_folder_counts_as_long_as_its_file_is_there(tmp_path: Path) -> None:
    account = AccountJwt()
    source = AccountSource([str(tmp_path)])
    file = tmp_path / f"{account.key.public}.jwt"
    assert source.account(account.key.public) is None
    write(file, account.jwt(OPERATOR))
    assert source.account(account.key.public) is not None
    account.nats["revocations"] = {"*": 5}
    write(file, account.jwt(OPERATOR))
    found = source.account(account.key.public)
    assert found is not None
    assert found.nats.revocations == {"*": 5}
    file.unlink()
    assert source.account(account.key.public) is None


def test_a_file_that_became_wrong_leaves_the_account_of_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    account = AccountJwt()
    folder = tmp_path / "accounts"
    folder.mkdir()
    source = AccountSource([str(folder)])
    file = write(folder / f"{account.key.public}.jwt", account.jwt(OPERATOR))
    assert source.account(account.key.public) is not None
    with caplog.at_level(logging.WARNING):
        write(file, "half a tok")
        assert source.account(account.key.public) is not None
    assert "file not read again" in caplog.text


def test_a_file_that_was_never_right_is_no_account(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor is one of another account, whatever its name, or what is no text."""
    account, other = AccountJwt(), AccountJwt()
    file = tmp_path / f"{account.key.public}.jwt"
    source = AccountSource([str(tmp_path)])
    for content in (b"", b"\xff\xfe", os.urandom(10)):
        file.write_bytes(content)
        assert source.account(account.key.public) is None
    assert "account JWT not used" in caplog.text
    write(file, other.jwt(OPERATOR))
    assert source.account(account.key.public) is None
    assert source.account(other.key.public) is None


def test_no_more_accounts_stay_in_memory_than_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account_files, "KEPT_MAX", 2)
    source = AccountSource([str(tmp_path)])
    accounts = [AccountJwt() for _ in range(4)]
    for each in accounts:
        write(tmp_path / f"{each.key.public}.jwt", each.jwt(OPERATOR))
    for each in (*accounts, *accounts):
        assert source.account(each.key.public) is not None
        assert len(source._kept) <= 2
