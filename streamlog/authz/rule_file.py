"""Access rules in a file: TOML, or JSON of the same shape (``.json``).

::

    [[allow]]
    principals = ["User:alice", "User:bob"]
    hosts = ["10.0.0.7"]                        # default: any
    operations = ["read"]
    topics = ["orders", "metrics-*"]            # a name, a prefix with *, or * alone
    groups = ["alice-*"]

    [[deny]]
    principals = ["User:*"]
    operations = ["all"]
    cluster = true

An entry stands for each combination of what it lists; an operation that a kind of resource does not
have is wrong in an entry about that kind alone, and else left out there.
"""

import asyncio
import json
import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Final

import aiofiles
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from streamlog.acl.rules import (
    ANYTHING,
    CLUSTER_NAME,
    OPERATIONS,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
    RuleBook,
)
from streamlog.errors import ConfigError, InvalidRequest

RULES_MAX: Final = 10_000
BYTES_MAX: Final = 4 * 1024 * 1024

_KEY: Final = "authorization.rules_file"
Texts = Annotated[list[str], Field(min_length=1)]


class RuleEntry(BaseModel):
    """A table of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    principals: Texts
    hosts: Texts = Field(default_factory=lambda: [ANYTHING])
    operations: Annotated[list[Operation], Field(min_length=1)]
    topics: list[str] = Field(default_factory=list)
    groups: list[str] = Field(default_factory=list)
    transactional_ids: list[str] = Field(default_factory=list)
    cluster: bool = False

    def rules(self, permission: Permission) -> Iterator[Rule]:
        """Raises InvalidRequest."""
        resources = list(self._resources())
        if not resources:
            raise InvalidRequest(
                "names no resource: write topics, groups, transactional_ids, or cluster = true"
            )
        kinds = {kind for kind, _, _ in resources}
        for principal, host, operation in product(self.principals, self.hosts, self.operations):
            if not any(operation in OPERATIONS[kind] for kind in kinds):
                told = " or ".join(sorted(kinds))
                raise InvalidRequest(f"{operation} is no operation on a {told}")
            for kind, pattern_type, name in resources:
                if operation in OPERATIONS[kind]:
                    yield Rule.of(
                        permission=permission,
                        principal=principal,
                        host=host,
                        operation=operation,
                        resource_type=kind,
                        pattern_type=pattern_type,
                        name=name,
                    )

    def _resources(self) -> Iterator[tuple[ResourceType, PatternType, str]]:
        for kind, names in (
            (ResourceType.TOPIC, self.topics),
            (ResourceType.GROUP, self.groups),
            (ResourceType.TRANSACTIONAL_ID, self.transactional_ids),
        ):
            for name in names:
                yield (kind, *pattern_of(name))
        if self.cluster:
            yield ResourceType.CLUSTER, PatternType.LITERAL, CLUSTER_NAME


class Content(BaseModel):
    """The file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    allow: list[RuleEntry] = Field(default_factory=list)
    deny: list[RuleEntry] = Field(default_factory=list)


def pattern_of(text: str) -> tuple[PatternType, str]:
    """``orders`` itself, ``orders-*`` what begins so, ``*`` everything."""
    if len(text) > 1 and text.endswith(ANYTHING):
        return PatternType.PREFIXED, text[: -len(ANYTHING)]
    return PatternType.LITERAL, text


def read_rules(path: Path) -> RuleBook:
    """Blocking, for the start. Raises ConfigError that names what is wrong, with the remedy."""
    try:
        with path.open("rb") as file:
            data = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise _unreadable(path, error) from None
    return parsed_rules(path, data)


async def reread_rules(path: Path) -> RuleBook:
    """``read_rules`` on an event loop."""
    try:
        async with aiofiles.open(path, "rb") as file:
            data = await file.read(BYTES_MAX + 1)
    except OSError as error:
        raise _unreadable(path, error) from None
    return await asyncio.to_thread(parsed_rules, path, data)  # of 10,000 rules it takes a while


def parsed_rules(path: Path, data: bytes) -> RuleBook:
    """``data``: of the file, or of its first ``BYTES_MAX`` bytes and one more. Raises ConfigError."""
    content = _content(path, data)
    try:
        parsed = Content.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(_KEY, f"{path}: {place}: {first['msg']}", "correct the file") from None
    book = RuleBook()
    for word, entries in ((Permission.DENY, parsed.deny), (Permission.ALLOW, parsed.allow)):
        for number, entry in enumerate(entries):
            try:
                for rule in entry.rules(word):
                    book = book.added(rule)
                    if len(book) > RULES_MAX:
                        problem = f"{path}: more than {RULES_MAX} rules"
                        raise ConfigError(_KEY, problem, "use prefixes")
            except InvalidRequest as error:
                problem = f"{path}: {word}.{number}: {error}"
                raise ConfigError(_KEY, problem, "correct the file") from None
    return book


def _unreadable(path: Path, error: OSError) -> ConfigError:
    problem = f"{path}: cannot be read ({error.strerror})"
    return ConfigError(_KEY, problem, "name a readable TOML or JSON file")


def _content(path: Path, data: bytes) -> dict[str, Any]:
    if len(data) > BYTES_MAX:
        problem = f"{path}: larger than {BYTES_MAX} bytes"
        raise ConfigError(_KEY, problem, "use prefixes, and the cluster's own rules")
    try:
        text = data.decode()
        found = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        what = "JSON" if path.suffix == ".json" else "TOML"
        raise ConfigError(_KEY, f"{path}: is not {what} ({error})", "correct the file") from None
    if not isinstance(found, dict):
        raise ConfigError(_KEY, f"{path}: is no table", "write allow and deny entries")
    return found
