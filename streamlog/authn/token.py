"""JSON Web Tokens of OAUTHBEARER: who signed them, whom they are for, and until when (RFC 7519).

Signatures are PyJWT's affair. The time is given, not looked up.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import jwt
from jwt.exceptions import PyJWTError
from jwt.types import Options

from streamlog.authn.principal import ANONYMOUS
from streamlog.errors import AuthenticationFailed, ConfigError

ALGORITHMS: Final = ("RS256", "ES256", "EdDSA")
"""None that a public key could be mistaken for a secret in."""
KEYS_MAX: Final = 100
NAME_CHARS_MAX: Final = 255
_REFUSED: Final = "the token is not to be believed"
_SIGNATURE_ONLY: Final[Options] = {
    "verify_signature": True,
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}
"""What a token claims is looked at here, at a time that is given."""


class Verified(NamedTuple):
    """What a token that is believed says."""

    user: str
    expires_s: float
    """Unix time, by the issuer's clock."""


class TokenRules(NamedTuple):
    """What a token has to say."""

    issuer: str
    audience: str
    principal_claim: str = "sub"
    clock_skew_s: float = 30.0


class KeySet:
    """The keys of a JSON Web Key Set (RFC 7517) that may sign tokens."""

    def __init__(self, content: Any, key: str) -> None:
        """Keys of other kinds, which such sets have as well, are passed over.

        ``key``: the setting that named the file. Raises ConfigError.
        """
        remedy = f"write a JSON Web Key Set with public keys for {', '.join(ALGORITHMS)}"
        listed = content.get("keys") if isinstance(content, Mapping) else None
        if not isinstance(listed, list) or not 0 < len(listed) <= KEYS_MAX:
            raise ConfigError(key, f"the file has no keys, or more than {KEYS_MAX}", remedy)
        if any(isinstance(it, dict) and "d" in it for it in listed):
            raise ConfigError(
                key, "the file has private keys", "take them out: they are not needed"
            )
        self._keys = [found for it in listed if (found := _public_key(it)) is not None]
        if not self._keys:
            raise ConfigError(key, "none of the file's keys can be used", remedy)

    def __len__(self) -> int:
        return len(self._keys)

    def verify(self, token: str, rules: TokenRules, now_s: float) -> Verified:
        """Raises AuthenticationFailed, which tells its sender no more than that."""
        claims = self._claims(token)
        skew_s = rules.clock_skew_s
        expires_s = _time(claims, "exp")
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        user = claims.get(rules.principal_claim)
        believed = (
            expires_s is not None
            and now_s < expires_s + skew_s
            and (_time(claims, "nbf", now_s) or now_s) <= now_s + skew_s
            and (_time(claims, "iat", now_s) or now_s) <= now_s + skew_s
            and claims.get("iss") == rules.issuer
            and rules.audience in audiences
        )
        if not believed or expires_s is None:
            raise AuthenticationFailed(_REFUSED)
        if not isinstance(user, str) or not 0 < len(user) <= NAME_CHARS_MAX:
            raise AuthenticationFailed(_REFUSED)
        if user == ANONYMOUS.name:
            raise AuthenticationFailed(_REFUSED)
        return Verified(user, expires_s + skew_s)

    def _claims(self, token: str) -> dict[str, Any]:
        """Of a token that one of the keys has signed."""
        try:
            header = jwt.get_unverified_header(token)
            for candidate in self._fitting(header):
                try:
                    claims: dict[str, Any] = jwt.decode(
                        token,
                        candidate.key,
                        algorithms=[candidate.algorithm_name],
                        options=_SIGNATURE_ONLY,
                    )
                except jwt.InvalidSignatureError:
                    continue
                return claims
        except (PyJWTError, ValueError, TypeError, RecursionError):
            pass
        raise AuthenticationFailed(_REFUSED)

    def _fitting(self, header: Mapping[str, Any]) -> list[jwt.PyJWK]:
        """By the algorithm, which the key tells and not the token, and by the id where it says."""
        named = header.get("kid")
        return [
            it
            for it in self._keys
            if it.algorithm_name == header.get("alg") and (named is None or it.key_id == named)
        ]


def _public_key(entry: Any) -> jwt.PyJWK | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    try:
        found = jwt.PyJWK(entry)
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    return found if found.algorithm_name in ALGORITHMS else None


def _time(claims: Mapping[str, Any], claim: str, default: float | None = None) -> float | None:
    """Raises AuthenticationFailed where it is no time."""
    value = claims.get(claim, default)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        raise AuthenticationFailed(_REFUSED)
    return float(value)
