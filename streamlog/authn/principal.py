"""Principals, as Kafka writes them: a kind and a name, ``User:alice``."""

from typing import Final, NamedTuple, Self

from streamlog.errors import InvalidRequest

USER: Final = "User"


class Principal(NamedTuple):
    """Who asks. Names are compared as they are: neither case nor spelling is folded."""

    kind: str
    name: str

    @classmethod
    def user(cls, name: str) -> Self:
        return cls(USER, name)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Of ``User:alice``; the name may have colons. Raises InvalidRequest."""
        kind, colon, name = text.partition(":")
        if not (kind and colon and name):
            raise InvalidRequest(f"principal {text[:80]!r}: write kind and name, as in User:alice")
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""A client that has not logged in; Kafka's name for it, which no user may have."""
