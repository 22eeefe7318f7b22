import time
from base64 import urlsafe_b64encode
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from streamlog.authn.token import KeySet, TokenRules, Verified
from streamlog.errors import AuthenticationFailed, ConfigError
from tests.signed_tokens import (
    AUDIENCE,
    ISSUER,
    claims,
    key_set,
    private_key,
    public_jwk,
    token,
)

RULES = TokenRules(ISSUER, AUDIENCE)
SETTING = "sasl.oauth_jwks_file"
HOUR_S = 3600


def verify(text: str, rules: TokenRules = RULES, *, after_s: float = 0) -> Verified:
    return KeySet(key_set(), SETTING).verify(text, rules, time.time() + after_s)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_a_token_says_who_and_until_when(algorithm: str) -> None:
    verified = verify(token(algorithm))
    assert verified.user == "alice"
    assert verified.expires_s == pytest.approx(time.time() + HOUR_S + 30, abs=5)


def test_another_claim_may_name_the_user() -> None:
    rules = RULES._replace(principal_claim="preferred_username")
    assert verify(token(preferred_username="bob"), rules).user == "bob"


def test_a_token_may_be_for_several() -> None:
    assert verify(token(aud=["else", AUDIENCE])).user == "alice"


def test_a_key_without_an_id_fits_any() -> None:
    keys = {"keys": [{k: v for k, v in public_jwk("ES256").items() if k != "kid"}]}
    text = jwt.encode(claims(), private_key("ES256"), "ES256")
    assert KeySet(keys, SETTING).verify(text, RULES, time.time()).user == "alice"


def test_clocks_may_differ_by_so_much() -> None:
    assert verify(token(), after_s=HOUR_S + 20).user == "alice"
    assert verify(token(nbf=int(time.time()) + 20)).user == "alice"
    with pytest.raises(AuthenticationFailed):
        verify(token(), after_s=HOUR_S + 40)


@pytest.mark.parametrize(
    "changed",
    [
        {"iss": "https://elsewhere"},
        {"iss": None},
        {"aud": "else"},
        {"aud": ["else"]},
        {"aud": None},
        {"exp": None},
        {"exp": 1},
        {"nbf": 2**40},
        {"iat": 2**40},
        {"sub": None},
        {"sub": ""},
        {"sub": "ANONYMOUS"},
        {"sub": "x" * 300},
    ],
)
def test_what_a_token_has_to_say_is_asked_for(changed: dict[str, Any]) -> None:
    with pytest.raises(AuthenticationFailed, match="not to be believed"):
        verify(token(**changed))


@pytest.mark.parametrize("claim", ["exp", "nbf", "iat"])
@pytest.mark.parametrize("value", ["soon", True, [], -1, 2**80])
def test_a_time_is_a_number(claim: str, value: Any) -> None:
    text = _unchecked({**claims(), claim: value})
    with pytest.raises(AuthenticationFailed, match="not to be believed"):
        verify(text)


def test_a_token_is_signed_by_a_key_of_the_set() -> None:
    with pytest.raises(AuthenticationFailed):
        KeySet(key_set("RS256"), SETTING).verify(token("ES256"), RULES, time.time())
    head, body, _ = token("ES256").split(".")
    other = token("ES256", sub="mallory").split(".")[2]
    for text in (f"{head}.{body}.{other}", f"{head}.{body}.", f"{head}.{body}", "", "..", "a.b.c"):
        with pytest.raises(AuthenticationFailed, match="not to be believed"):
            verify(text)


def test_a_token_without_a_signature_is_not_believed() -> None:
    text = jwt.encode(claims(), "", algorithm="none")
    with pytest.raises(AuthenticationFailed):
        verify(text)


def test_a_public_key_is_no_secret_to_sign_with() -> None:
    public = private_key("RS256").public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head = jwt.encode(claims(), "x" * 64, "HS256", headers={"kid": "RS256"}).rpartition(".")[0]
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    signed = signature.sign(head.encode(), pem)
    text = f"{head}.{urlsafe_b64encode(signed).rstrip(b'=').decode()}"
    with pytest.raises(AuthenticationFailed):
        verify(text)


def test_keys_of_other_kinds_are_passed_over() -> None:
    others: list[Any] = [
        {"kty": "oct", "k": "c2VjcmV0"},
        {**public_jwk("RS256"), "use": "enc"},
        {"kty": "nonsense"},
        "nonsense",
    ]
    keys = KeySet({"keys": [*others, public_jwk("ES256")]}, SETTING)
    assert len(keys) == 1
    with pytest.raises(ConfigError, match=r"sasl\.oauth_jwks_file"):
        KeySet({"keys": others}, SETTING)


@pytest.mark.parametrize(
    "content",
    [None, [], {}, {"keys": []}, {"keys": "x"}, {"keys": [{**public_jwk("ES256"), "d": "AAAA"}]}],
)
def test_a_file_that_is_no_key_set_is_told_with_the_remedy(content: Any) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.oauth_jwks_file"):
        KeySet(content, SETTING)


def _unchecked(said: dict[str, Any]) -> str:
    """jwt.encode looks at times; jws does not."""
    import json

    payload = json.dumps(said).encode()
    return jwt.PyJWS().encode(payload, private_key("ES256"), "ES256", headers={"kid": "ES256"})
