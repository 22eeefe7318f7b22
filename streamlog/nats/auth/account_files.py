"""Where the JWTs of the operator and of its accounts come from: files, folders, and settings.

A file is read again when it has changed. A folder has an account in the file that nats-server's own
resolver writes, ``<public key>.jwt``. It is looked at when a user of that account logs in: an account
counts as soon as its file is there, and not when the file is gone. A file that has become wrong leaves
what was read before, with a warning.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from streamlog.authn.nkey import NkeyKind, is_public_key
from streamlog.config.watched_file import FILE_NOT_READ_AGAIN, WatchedFile
from streamlog.errors import AuthenticationFailed, ConfigError
from streamlog.nats.auth.operator_jwt import (
    STORED_TOKEN_CHARS_MAX,
    AccountClaims,
    TrustedOperator,
    read_account,
)

logger = logging.getLogger(__name__)

OPERATOR_KEY: Final = "nats_listen.operator"
SIGNING_KEYS_KEY: Final = "nats_listen.operator_signing_keys"
ACCOUNTS_KEY: Final = "nats_listen.account_jwts"
JWT_HEAD: Final = "eyJ"
"""With which every JWT begins: ``{"`` in base64."""
KEPT_MAX: Final = 1_000
"""Accounts of folders that stay in memory."""

T = TypeVar("T")


class OperatorSource:
    """Whom ``nats_listen.operator`` trusts, as it is now."""

    def __init__(self, operator: str, signing_keys: Sequence[str]) -> None:
        """``operator``: a public key, a JWT, or the name of a file with a JWT. Reads it. Raises
        ConfigError.
        """
        self._file: WatchedFile[TrustedOperator] | None = None
        more = _made(SIGNING_KEYS_KEY, lambda: TrustedOperator.of_keys(*signing_keys)).keys
        self._more = more
        if is_public_key(operator, NkeyKind.OPERATOR):
            self._fixed = TrustedOperator.of_keys(operator)
        elif operator.startswith(JWT_HEAD):
            self._fixed = _made(OPERATOR_KEY, lambda: TrustedOperator.of_jwt(operator))
        else:
            self._file = WatchedFile(Path(operator), _read_operator)

    def operator(self) -> TrustedOperator:
        found = self._fixed if self._file is None else self._file.content()
        return found._replace(keys=found.keys | self._more) if self._more else found


class AccountSource:
    """The accounts of ``nats_listen.account_jwts``, as they are now."""

    def __init__(self, places: Sequence[str]) -> None:
        """JWTs, files with one, and folders. Reads what is no folder. Raises ConfigError."""
        self._fixed: dict[str, AccountClaims] = {}
        self._files: list[WatchedFile[AccountClaims]] = []
        self._folders: list[Path] = []
        self._kept: OrderedDict[Path, WatchedFile[AccountClaims]] = OrderedDict()
        """Files of folders; the one that was asked for longest ago first."""
        for place in places:
            if place.startswith(JWT_HEAD):
                account = _made(ACCOUNTS_KEY, partial(read_account, place))
                self._fixed[account.sub] = account
            elif Path(place).is_dir():
                self._folders.append(Path(place))
            else:
                self._files.append(WatchedFile(Path(place), _read_account))

    def account(self, key: str) -> AccountClaims | None:
        """By its public key. Nothing is said about who signed it, or whether it holds."""
        if not is_public_key(key, NkeyKind.ACCOUNT):
            return None
        if key in self._fixed:
            return self._fixed[key]
        for file in self._files:
            if (found := file.content()).sub == key:
                return found
        for folder in self._folders:
            if (kept := self._in_folder(folder / f"{key}.jwt", key)) is not None:
                return kept
        return None

    def _in_folder(self, path: Path, key: str) -> AccountClaims | None:
        if not path.is_file():
            self._kept.pop(path, None)
            return None
        file = self._kept.get(path)
        if file is None:
            try:
                file = WatchedFile(path, _read_account)
            except ConfigError as error:
                event = FILE_NOT_READ_AGAIN.logged_as("account JWT not used")
                logger.warning(event, extra={"problem": str(error)})
                return None
            self._kept[path] = file
            if len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        self._kept.move_to_end(path)
        found = file.content()
        return found if found.sub == key else None


def _read_operator(path: Path) -> TrustedOperator:
    """Raises ConfigError."""
    text = _text_of(path, OPERATOR_KEY)
    return _made(OPERATOR_KEY, lambda: TrustedOperator.of_jwt(text), str(path))


def _read_account(path: Path) -> AccountClaims:
    """Raises ConfigError."""
    text = _text_of(path, ACCOUNTS_KEY)
    return _made(ACCOUNTS_KEY, lambda: read_account(text), str(path))


def _text_of(path: Path, key: str) -> str:
    try:
        with path.open(encoding="ascii") as file:
            return file.read(STORED_TOKEN_CHARS_MAX + 1)
    except OSError as error:
        problem = f"{path} cannot be read ({error.strerror})"
        raise ConfigError(key, problem, "name a file with a JWT, as nsc writes it") from None
    except UnicodeDecodeError:
        problem = f"{path} is no JWT"
        raise ConfigError(key, problem, "name a file with a JWT, as nsc writes it") from None


def _made(key: str, make: Callable[[], T], place: str = "") -> T:
    """Raises ConfigError where ``make`` finds something wrong."""
    try:
        return make()
    except AuthenticationFailed as error:
        problem = f"{place}: {error}" if place else str(error)
        raise ConfigError(key, problem, "export it again, with nsc describe --raw") from None
