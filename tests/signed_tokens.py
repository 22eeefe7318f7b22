"""Keys as an identity provider has them, and tokens signed by them."""

import json
import time
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER = "https://id.example.org"
AUDIENCE = "streamlog"


@cache
def private_key(algorithm: str) -> Any:
    match algorithm:
        case "RS256":
            return rsa.generate_private_key(public_exponent=65537, key_size=2048)
        case "ES256":
            return ec.generate_private_key(ec.SECP256R1())
        case _:
            return ed25519.Ed25519PrivateKey.generate()


def public_jwk(algorithm: str, *, kid: str | None = None) -> dict[str, Any]:
    key = private_key(algorithm).public_key()
    kind = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm}.get(algorithm, OKPAlgorithm)
    jwk: dict[str, Any] = json.loads(kind.to_jwk(key))  # type: ignore[attr-defined]
    jwk.pop("key_ops", None)
    return {**jwk, "kid": kid or algorithm}


def key_set(*algorithms: str) -> dict[str, Any]:
    return {"keys": [public_jwk(it) for it in algorithms or ("RS256", "ES256", "EdDSA")]}


def claims(**changed: Any) -> dict[str, Any]:
    """Those of Alice for an hour; None takes one away."""
    now_s = int(time.time())
    said = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": now_s, "exp": now_s + 3600}
    return {key: value for key, value in {**said, **changed}.items() if value is not None}


def token(algorithm: str = "ES256", *, kid: str | None = None, **changed: Any) -> str:
    headers = {"kid": kid or algorithm}
    return jwt.encode(claims(**changed), private_key(algorithm), algorithm, headers=headers)
