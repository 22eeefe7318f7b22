"""Which principal a certificate's subject stands for, as Kafka's rules tell it (KIP-371)."""

import re
from typing import Final, NamedTuple

from streamlog.authn.principal import ANONYMOUS, Principal
from streamlog.errors import AuthenticationFailed, ConfigError

RULES: Final = "sasl.principal_mapping_rules"
_RULE: Final = re.compile(
    r"(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^/\\])+)/(?P<name>(?:\\.|[^/\\])*)/(?P<case>[LU]?)"
)
_GROUP: Final = re.compile(r"\$(\d)")


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    """None: the whole name as it is."""
    name: str
    case: str


class PrincipalMapping:
    """``RULE:pattern/name/[LU]``, ``DEFAULT``; by commas or one a line. The first that fits holds.

    As Kafka's ``ssl.principal.mapping.rules``: the pattern must fit the whole name, ``$1`` is its
    first group, L and U make small and capital letters of the result.
    """

    def __init__(self, text: str) -> None:
        """Raises ConfigError."""
        self._rules = [_rule(it) for it in _split(text)]

    def principal(self, name: str) -> Principal:
        """Of a subject as RFC 4514 writes it. Raises AuthenticationFailed where no rule fits."""
        for pattern, replacement, case in self._rules:
            if pattern is None:
                return _user(name)
            found = pattern.fullmatch(name)
            if found:
                user = found.expand(replacement)
                return _user({"L": user.lower(), "U": user.upper()}.get(case, user))
        raise AuthenticationFailed("no rule makes a principal of the certificate's subject")


def _user(name: str) -> Principal:
    if name in ("", ANONYMOUS.name):
        raise AuthenticationFailed("the certificate's subject comes to no name")
    return Principal.user(name)


def _split(text: str) -> list[re.Match[str]]:
    """One by one, for patterns have commas of their own."""
    rules, at = [], 0
    while at < len(text):
        found = _RULE.match(text, at)
        if found is None:
            problem = f"{text[at : at + 40]!r} is no rule"
            raise ConfigError(RULES, problem, "write RULE:pattern/name/[LU] or DEFAULT")
        rules.append(found)
        gap = re.compile(r"\s*(?:,\s*|\n\s*|$)").match(text, found.end())
        if gap is None:
            problem = f"{text[found.end() : found.end() + 40]!r} follows a rule"
            raise ConfigError(RULES, problem, "put a comma between rules")
        at = gap.end()
    if not rules:
        raise ConfigError(RULES, "is empty", "write DEFAULT for names as they are")
    return rules


def _rule(found: re.Match[str]) -> _Rule:
    if found["default"]:
        return _Rule(None, "", "")
    replacement = _GROUP.sub(r"\\g<\1>", found["name"].replace("\\/", "/").replace("\\", r"\\"))
    try:
        pattern = re.compile(found["pattern"].replace("\\/", "/"))
        _check_groups(pattern, found["name"])
    except re.error as error:
        problem = f"{found['pattern']!r} is no pattern ({error})"
        raise ConfigError(RULES, problem, "correct it") from None
    return _Rule(pattern, replacement, found["case"])


def _check_groups(pattern: re.Pattern[str], name: str) -> None:
    most = max((int(it) for it in _GROUP.findall(name)), default=0)
    if most > pattern.groups:
        problem = f"{name!r} names group {most} of {pattern.groups}"
        raise ConfigError(RULES, problem, "add parentheses to the pattern")
