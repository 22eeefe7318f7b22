"""The key set of OAUTHBEARER as its file has it now."""

import json
from pathlib import Path
from typing import Final

from streamlog.authn.token import KeySet, TokenRules, Verified
from streamlog.config import SaslSection
from streamlog.config.watched_file import WatchedFile
from streamlog.errors import ConfigError

KEY: Final = "sasl.oauth_jwks_file"
FILE_BYTES_MAX: Final = 1 << 20


class TokenKeys:
    """And what a token has to say."""

    def __init__(self, settings: SaslSection) -> None:
        """Raises ConfigError."""
        assert settings.oauth_jwks_file is not None
        assert settings.oauth_issuer is not None
        assert settings.oauth_audience is not None
        self._rules = TokenRules(
            settings.oauth_issuer,
            settings.oauth_audience,
            settings.oauth_principal_claim,
            settings.oauth_clock_skew_ms / 1000,
        )
        self._keys = WatchedFile(settings.oauth_jwks_file, _read)

    def verify(self, token: str, now_s: float) -> Verified:
        """``now_s``: Unix time. Raises AuthenticationFailed."""
        return self._keys.content().verify(token, self._rules, now_s)


def _read(path: Path) -> KeySet:
    """Raises ConfigError."""
    remedy = "name a JSON Web Key Set that this process may read"
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        content = json.loads(data) if len(data) <= FILE_BYTES_MAX else None
    except OSError as error:
        raise ConfigError(KEY, f"{path} cannot be read ({error.strerror})", remedy) from None
    except (ValueError, RecursionError):
        raise ConfigError(KEY, f"{path} is not JSON", remedy) from None
    return KeySet(content, KEY)
