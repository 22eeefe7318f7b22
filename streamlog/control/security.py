"""Operations on users, access rules and quotas."""

import asyncio
import secrets
from base64 import b64encode
from dataclasses import dataclass
from typing import Final

from streamlog.acl.filters import RuleFilter, found
from streamlog.acl.rules import Operation, Rule
from streamlog.authn.scram import ITERATIONS, Scram, credential_of, salted_password
from streamlog.control.operation import Operations, operation
from streamlog.errors import InvalidRequest
from streamlog.fairness import cooperatively
from streamlog.metadata import controller
from streamlog.metadata.commands import AddAccessRules, AlterQuota, AlterUser, RemoveAccessRules
from streamlog.metadata.image.credential import Credentials, StoredCredential, check_user_name
from streamlog.metadata.image.quota import Quota, QuotaKey
from streamlog.model import NodeId, ScramName

SECRET_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class User:
    """Who may log in by a password. Nothing that the password could be guessed from."""

    name: str
    iterations: dict[str, int]
    """By mechanism."""


@dataclass(frozen=True, slots=True)
class RulesFound:
    """Rules of the cluster's metadata, and those of this node's own file."""

    rules: tuple[Rule, ...]
    file_rules: tuple[Rule, ...]
    """No request changes them."""
    file: str | None
    """Where they stand; None: the node has no such file."""
    node: NodeId
    """Whose file it is."""


class UserOperations(Operations):
    """Users with passwords. Needs DESCRIBE, or ALTER, of the cluster."""

    group = "users"

    @operation("GET /users")
    async def list(self) -> tuple[User, ...]:
        """List the users that have a password."""
        if self._access is not None:
            self._access.check_cluster(Operation.DESCRIBE)
        await self._service.freshness.catch_up()
        users = self._metadata.image.users
        found: list[User] = []
        async for name in cooperatively(sorted(users)):
            kept = sorted(users[name].items())
            found.append(User(name, {it: stored.iterations for it, stored in kept}))
        return tuple(found)

    @operation("PUT /users/{name}", about=("name",), act=True)
    async def set_password(
        self, name: str, password: str, mechanism: ScramName = "SCRAM-SHA-512"
    ) -> None:
        """Set the password of a user. A user that is not there yet is created."""
        self._check(name)
        salt = secrets.token_bytes(16)
        scram = Scram(mechanism)
        salted = await asyncio.to_thread(salted_password, scram, password, salt, ITERATIONS)
        stored = StoredCredential.of(credential_of(scram, salted, salt, ITERATIONS))
        await self._metadata.request(self._command(name, {mechanism: stored}, ()))

    @operation("DELETE /users/{name}", about=("name",), act=True)
    async def delete(self, name: str) -> None:
        """Take all passwords of a user away."""
        self._check(name)
        await self._service.freshness.catch_up()
        known = tuple(self._metadata.image.users.get(name, {}))
        if not known:
            raise InvalidRequest(f"there is no user {name!r} with a password")
        await self._metadata.request(self._command(name, {}, known))

    @operation("PATCH /users/{name}", about=("name", "removed"), act=True)
    async def alter(self, name: str, changed: Credentials, removed: tuple[ScramName, ...]) -> None:
        """Set and remove salted passwords of a user, all of them or none.

        A Kafka client salts and hashes the password itself.
        """
        self._check(name)
        await self._metadata.request(self._command(name, changed, removed))

    def _check(self, name: str) -> None:
        """Raises ClusterForbidden, InvalidRequest."""
        if self._access is not None:
            self._access.check_cluster(Operation.ALTER)
        check_user_name(name)
        if name == self._service.node_user:
            raise InvalidRequest(
                f"{name!r} is whom nodes log in as: its password is in sasl.node_password_file"
            )

    @staticmethod
    def _command(name: str, changed: Credentials, removed: tuple[ScramName, ...]) -> AlterUser:
        secret = b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
        return AlterUser(name=name, changed=changed, removed=removed, decoy_secret=secret)


class RuleOperations(Operations):
    """Access rules. Needs DESCRIBE, or ALTER, of the cluster."""

    group = "rules"

    @operation("GET /rules")
    async def list(self, wanted: RuleFilter = RuleFilter()) -> RulesFound:  # noqa: B008  # a value
        """List the access rules that a filter matches."""
        if self._access is not None:
            self._access.check_cluster(Operation.DESCRIBE)
        await self._service.freshness.catch_up()
        rules = tuple(found(self._metadata.image.rules, wanted))
        authorization, of_file, file = self._service.authorization, tuple[Rule, ...](), None
        if authorization is not None and authorization.file is not None:
            file = str(authorization.file)
            of_file = tuple(found(authorization.file_rules, wanted))
        return RulesFound(rules, of_file, file, self._service.node_id)

    @operation("POST /rules", about=("rules",), act=True)
    async def add(self, rules: tuple[Rule, ...]) -> None:
        """Add access rules, all of them or none. A rule that is there already is a success."""
        if self._access is not None:
            self._access.check_cluster(Operation.ALTER)
        await self._metadata.request(AddAccessRules(rules=rules))

    @operation("POST /rules/remove", about=("filters",), act=True)
    async def remove(self, filters: tuple[RuleFilter, ...]) -> tuple[tuple[Rule, ...], ...]:
        """Remove the access rules that filters match; which they were, for each filter."""
        if self._access is not None:
            self._access.check_cluster(Operation.ALTER)
        granted = await self._metadata.request(RemoveAccessRules(filters=filters))
        return tuple(tuple(map(Rule.model_validate, rules)) for rules in granted.result["removed"])


@dataclass(frozen=True, slots=True)
class ClientQuota:
    """What clients that call themselves ``client_id`` may use; None: all that have no quota of their own."""

    client_id: str | None
    quota: Quota


class QuotaOperations(Operations):
    """Quotas of client ids. Needs DESCRIBE_CONFIGS, or ALTER_CONFIGS, of the cluster."""

    group = "quotas"

    @operation("GET /quotas")
    async def list(self) -> tuple[ClientQuota, ...]:
        """List the quotas by client id; that of null is the default of all that have none of their own."""
        if self._access is not None:
            self._access.check_cluster(Operation.DESCRIBE_CONFIGS)
        await self._service.freshness.catch_up()
        quotas = self._metadata.image.quotas
        names = sorted(quotas, key=lambda it: (it is not None, it or ""))
        return tuple(ClientQuota(name, quotas[name]) for name in names)

    @operation("PATCH /quotas", about=("client_id",), act=True)
    async def alter(
        self,
        client_id: str | None,
        values: dict[QuotaKey, float | None],
        validate_only: bool = False,
    ) -> None:
        """Change the quotas of a client id, all of them or none; null ends a limit."""
        if self._access is not None:
            self._access.check_cluster(Operation.ALTER_CONFIGS)
        command = AlterQuota(client_id=client_id, values=values)
        if validate_only:
            controller.alter_quota(self._metadata.image, command)
        else:
            await self._metadata.request(command)
