import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from streamlog.cli.options.connection_options import cluster_at
from streamlog.cli.options.options import SERVERS, Json, Servers, Yes
from streamlog.cli.output import print_json, print_table, say
from streamlog.errors import InvalidRequest

if TYPE_CHECKING:
    from streamlog.acl.filters import RuleFilter
    from streamlog.acl.rules import Rule
    from streamlog.client.cluster import Cluster

app = typer.Typer(
    help="Who may do what with streams, groups and the cluster.", no_args_is_help=True
)

T = TypeVar("T")

CLUSTER: Final = "cluster"
FILE: Final = "rules_file"
"""Where a rule stands."""

_RESOURCE = "A name; PREFIX* for all that begin so; * for all. May be repeated."
Principals = Annotated[
    list[str] | None,
    typer.Option("--principal", "-p", help="As in User:alice; User:* is every user."),
]
Hosts = Annotated[
    list[str] | None, typer.Option("--host", help="An address it is asked from. Default: any.")
]
Operations = Annotated[
    list[str] | None,
    typer.Option(
        "--operation",
        "-o",
        help="read, write, create, delete, alter, describe, describe_configs, alter_configs,"
        " cluster_action, idempotent_write or all. May be repeated.",
    ),
]
Topics = Annotated[list[str] | None, typer.Option("--topic", "-t", help=_RESOURCE)]
Groups = Annotated[list[str] | None, typer.Option("--group", "-g", help=_RESOURCE)]
TheCluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Deny = Annotated[bool, typer.Option("--deny", help="Deny, whatever is allowed elsewhere.")]


@app.command("ls")
def list_rules(
    principal: Annotated[str | None, typer.Option("--principal", "-p", help="Of this one.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="That touch it.")] = None,
    group: Annotated[str | None, typer.Option("--group", "-g", help="That touch it.")] = None,
    servers: Servers = SERVERS,
    as_json: Json = False,
) -> None:
    """The rules, all or those about something: of the cluster, and of the answering node's file."""
    wanted = _about(principal, topic, group)
    rules = _ask(servers, lambda cluster: _described(cluster, wanted))
    if as_json:
        print_json([{**rule.model_dump(mode="json"), "source": where} for rule, where in rules])
        return
    print_table(
        ("PERMISSION", "PRINCIPAL", "HOST", "OPERATION", "RESOURCE", "NAME", "SOURCE"),
        (
            (it.permission, it.principal, it.host, it.operation, it.resource_type, _pattern(it),
             where)
            for it, where in rules
        ),
    )  # fmt: skip


@app.command("add")
def add(
    principal: Principals = None,
    operation: Operations = None,
    topic: Topics = None,
    group: Groups = None,
    cluster: TheCluster = False,
    host: Hosts = None,
    deny: Deny = False,
    servers: Servers = SERVERS,
) -> None:
    """Allow, or deny: each principal each operation on each resource."""
    if not operation:
        raise typer.BadParameter("name an operation: --operation read")
    rules = list(_rules(principal, operation, topic, group, cluster, host, deny))
    _ask(servers, lambda asked: _create(asked, rules))
    for rule in rules:
        say(f"added: {rule}")


@app.command("rm")
def remove(
    principal: Principals = None,
    operation: Operations = None,
    topic: Topics = None,
    group: Groups = None,
    cluster: TheCluster = False,
    host: Hosts = None,
    servers: Servers = SERVERS,
    yes: Yes = False,
) -> None:
    """Take back rules: what is not named is any. Those that are no more are printed."""
    filters = list(_filters(principal, operation, topic, group, cluster, host))
    if not yes:
        found = _ask(servers, lambda asked: _matching(asked, filters))
        if not found:
            say("no rule is like that")
            return
        for rule, where in found:
            say(rule if where == CLUSTER else f"{rule} ({where}: that one stays)")
        typer.confirm(
            f"Take back {'this rule' if len(found) == 1 else f'these {len(found)}'}?", abort=True
        )
    gone, kept = _ask(servers, lambda asked: _delete(asked, filters))
    for rule in gone:
        say(f"removed: {rule}")
    if kept:
        raise InvalidRequest("; ".join(kept))


def _rules(
    principals: list[str] | None,
    operations: list[str],
    topics: list[str] | None,
    groups: list[str] | None,
    cluster: bool,
    hosts: list[str] | None,
    deny: bool,
) -> Iterator["Rule"]:
    from streamlog.acl.rules import ANYTHING, Rule

    if not principals:
        raise typer.BadParameter("name a principal: --principal User:alice")
    resources = list(_resources(topics, groups, cluster))
    if not resources:
        raise typer.BadParameter("name a resource: --topic, --group or --cluster")
    for who, host, what, (kind, pattern_type, name) in product(
        principals, hosts or [ANYTHING], operations, resources
    ):
        yield Rule.of(
            permission="deny" if deny else "allow", principal=who, host=host,
            operation=what.lower().replace("-", "_"), resource_type=kind,
            pattern_type=pattern_type, name=name,
        )  # fmt: skip


def _resources(
    topics: list[str] | None, groups: list[str] | None, cluster: bool
) -> Iterator[tuple[str, str, str]]:
    from streamlog.acl.rules import CLUSTER_NAME
    from streamlog.authz.rule_file import pattern_of

    for kind, names in (("topic", topics), ("group", groups)):
        for name in names or ():
            pattern_type, plain = pattern_of(name)
            yield kind, pattern_type.value, plain
    if cluster:
        yield "cluster", "literal", CLUSTER_NAME


def _filters(
    principals: list[str] | None,
    operations: list[str] | None,
    topics: list[str] | None,
    groups: list[str] | None,
    cluster: bool,
    hosts: list[str] | None,
) -> Iterator["RuleFilter"]:
    from pydantic import ValidationError

    from streamlog.acl.filters import RuleFilter

    resources: list[Any] = list(_resources(topics, groups, cluster)) or [(None, "any", None)]
    if not any((principals, operations, hosts, topics, groups, cluster)):
        raise typer.BadParameter("say which rules: --principal, --topic, --group, ...")
    for who, host, what, (kind, match, name) in product(
        _or_any(principals), _or_any(hosts), _or_any(operations), resources
    ):
        try:
            yield RuleFilter(
                principal=who, host=host, resource_type=kind, name_match=match, name=name,
                operation=what and what.lower().replace("-", "_"),
            )  # fmt: skip
        except ValidationError as error:
            raise InvalidRequest(str(error.errors()[0]["msg"])) from None


def _or_any(given: list[str] | None) -> list[Any]:
    return list(given) if given else [None]


def _about(principal: str | None, topic: str | None, group: str | None) -> "RuleFilter":
    from streamlog.acl.filters import NameMatch, RuleFilter
    from streamlog.acl.rules import ResourceType

    if topic is not None and group is not None:
        raise typer.BadParameter("a topic or a group, not both")
    name = topic if topic is not None else group
    kind = None
    if name is not None:
        kind = ResourceType.TOPIC if topic is not None else ResourceType.GROUP
    match = NameMatch.ANY if name is None else NameMatch.MATCH
    return RuleFilter(principal=principal, name=name, resource_type=kind, name_match=match)


def _pattern(rule: "Rule") -> str:
    return f"{rule.name}*" if rule.pattern_type == "prefixed" else rule.name


async def _described(cluster: "Cluster", wanted: "RuleFilter") -> list[tuple["Rule", str]]:
    """And where each stands."""
    from streamlog.kafka.auth.acl_codec import asked_filter, read_file_note, read_shown
    from streamlog.wire import registry
    from streamlog.wire.errors import check

    answer = await cluster.ask_any(registry.DESCRIBE_ACLS, asked_filter(wanted))
    check(answer["error_code"], answer["error_message"] or "the access rules")
    resources = answer["resources"]
    of_cluster = len(resources) - read_file_note(answer["error_message"])
    return [
        (read_shown(it, entry), CLUSTER if number < of_cluster else FILE)
        for number, it in enumerate(resources)
        for entry in it["acls"]
    ]


async def _matching(cluster: "Cluster", filters: list["RuleFilter"]) -> list[tuple["Rule", str]]:
    found = [rule for wanted in filters for rule in await _described(cluster, wanted)]
    return list(dict.fromkeys(found))


async def _create(cluster: "Cluster", rules: list["Rule"]) -> None:
    from streamlog.kafka.auth.acl_codec import shown_creation
    from streamlog.wire import registry

    creations = [shown_creation(rule) for rule in rules]
    answer = await cluster.ask_any(registry.CREATE_ACLS, {"creations": creations})
    for result in answer["results"]:
        _check(result)


async def _delete(
    cluster: "Cluster", filters: list["RuleFilter"]
) -> tuple[list["Rule"], list[str]]:
    """Those that are no more, and why others stay."""
    from streamlog.kafka.auth.acl_codec import asked_filter, read_shown
    from streamlog.wire import registry

    request = {"filters": [asked_filter(it) for it in filters]}
    answer = await cluster.ask_any(registry.DELETE_ACLS, request)
    gone: dict[Rule, None] = {}
    kept: dict[str, None] = {}
    for result in answer["filter_results"]:
        _check(result)
        for it in result["matching_acls"]:
            if it["error_code"]:
                kept[it["error_message"]] = None
            else:
                gone[read_shown(it, it)] = None
    return list(gone), list(kept)


def _check(result: Any) -> None:
    from streamlog.wire.errors import error_of

    if result["error_code"]:
        error = error_of(result["error_code"], "the access rules")
        raise type(error)(result["error_message"]) if result["error_message"] else error


def _ask(servers: str, question: Callable[["Cluster"], Awaitable[T]]) -> T:
    async def asked() -> T:
        async with cluster_at(servers) as cluster:
            return await question(cluster)

    return asyncio.run(asked())
