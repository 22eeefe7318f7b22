from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from streamlog.cli.options.connection_options import cluster_at, operate, run
from streamlog.cli.options.options import SERVERS, Json, Servers, Yes
from streamlog.cli.output import print_json, print_table, say
from streamlog.errors import InvalidRequest

if TYPE_CHECKING:
    from streamlog.acl.filters import RuleFilter
    from streamlog.acl.rules import Rule

app = typer.Typer(
    help="Who may do what with streams, groups, transactional ids and the cluster.",
    no_args_is_help=True,
)

Names = tuple[list[str] | None, list[str] | None, list[str] | None]
"""Of topics, groups and transactional ids."""
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
TransactionalIds = Annotated[list[str] | None, typer.Option("--transactional-id", help=_RESOURCE)]
TheCluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Deny = Annotated[bool, typer.Option("--deny", help="Deny, whatever is allowed elsewhere.")]


@app.command("ls")
def list_rules(
    principal: Annotated[str | None, typer.Option("--principal", "-p", help="Of this one.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="That touch it.")] = None,
    group: Annotated[str | None, typer.Option("--group", "-g", help="That touch it.")] = None,
    transactional_id: Annotated[
        str | None, typer.Option("--transactional-id", help="That touch it.")
    ] = None,
    servers: Servers = SERVERS,
    as_json: Json = False,
) -> None:
    """The rules, all or those about something: of the cluster, and of the answering node's file."""
    wanted = _about(principal, topic, group, transactional_id)
    rules = _listed(_ask(servers, [wanted]))
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
    transactional_id: TransactionalIds = None,
    cluster: TheCluster = False,
    host: Hosts = None,
    deny: Deny = False,
    servers: Servers = SERVERS,
) -> None:
    """Allow, or deny: each principal each operation on each resource."""
    if not operation:
        raise typer.BadParameter("name an operation: --operation read")
    rules = list(
        _rules(principal, operation, (topic, group, transactional_id), cluster, host, deny)
    )
    operate(servers, "rules.add", rules=[it.model_dump(mode="json") for it in rules])
    for rule in rules:
        say(f"added: {rule}")


@app.command("rm")
def remove(
    principal: Principals = None,
    operation: Operations = None,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    cluster: TheCluster = False,
    host: Hosts = None,
    servers: Servers = SERVERS,
    yes: Yes = False,
) -> None:
    """Take back rules: what is not named is any. Those that are no more are printed."""
    filters = list(_filters(principal, operation, (topic, group, transactional_id), cluster, host))
    answers = _ask(servers, filters)
    if not yes:
        found = _listed(answers)
        if not found:
            say("no rule is like that")
            return
        for rule, where in found:
            say(rule if where == CLUSTER else f"{rule} ({where}: that one stays)")
        typer.confirm(
            f"Take back {'this rule' if len(found) == 1 else f'these {len(found)}'}?", abort=True
        )
    kept = dict.fromkeys(
        f"{_rule(it)}: stands in {answer['file']} (authorization.rules_file) of node {answer['node']}:"
        " take it out there, on each node that has it"
        for answer in answers
        for it in answer["file_rules"]
    )
    wanted = [it.model_dump(mode="json") for it in filters]
    removed = operate(servers, "rules.remove", filters=wanted)
    for rule in dict.fromkeys(map(_rule, (it for rules in removed for it in rules))):
        say(f"removed: {rule}")
    if kept:
        raise InvalidRequest("; ".join(kept))


def _rules(
    principals: list[str] | None,
    operations: list[str],
    names: Names,
    cluster: bool,
    hosts: list[str] | None,
    deny: bool,
) -> Iterator["Rule"]:
    from streamlog.acl.rules import ANYTHING, Rule

    if not principals:
        raise typer.BadParameter("name a principal: --principal User:alice")
    resources = list(_resources(names, cluster))
    if not resources:
        raise typer.BadParameter(
            "name a resource: --topic, --group, --transactional-id or --cluster"
        )
    for who, host, what, (kind, pattern_type, name) in product(
        principals, hosts or [ANYTHING], operations, resources
    ):
        yield Rule.of(
            permission="deny" if deny else "allow", principal=who, host=host,
            operation=what.lower().replace("-", "_"), resource_type=kind,
            pattern_type=pattern_type, name=name,
        )  # fmt: skip


def _resources(names: Names, cluster: bool) -> Iterator[tuple[str, str, str]]:
    from streamlog.acl.rules import CLUSTER_NAME
    from streamlog.authz.rule_file import pattern_of

    for kind, named in zip(("topic", "group", "transactional_id"), names, strict=True):
        for name in named or ():
            pattern_type, plain = pattern_of(name)
            yield kind, pattern_type.value, plain
    if cluster:
        yield "cluster", "literal", CLUSTER_NAME


def _filters(
    principals: list[str] | None,
    operations: list[str] | None,
    names: Names,
    cluster: bool,
    hosts: list[str] | None,
) -> Iterator["RuleFilter"]:
    from pydantic import ValidationError

    from streamlog.acl.filters import RuleFilter

    resources: list[Any] = list(_resources(names, cluster)) or [(None, "any", None)]
    if not any((principals, operations, hosts, *names, cluster)):
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


def _about(
    principal: str | None, topic: str | None, group: str | None, transactional_id: str | None
) -> "RuleFilter":
    from streamlog.acl.filters import NameMatch, RuleFilter
    from streamlog.acl.rules import ResourceType

    kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
    names = zip(kinds, (topic, group, transactional_id), strict=True)
    named = [(kind, name) for kind, name in names if name is not None]
    if len(named) > 1:
        raise typer.BadParameter("a topic, a group or a transactional id, not several")
    kind, name = named[0] if named else (None, None)
    match = NameMatch.ANY if name is None else NameMatch.MATCH
    return RuleFilter(principal=principal, name=name, resource_type=kind, name_match=match)


def _pattern(rule: "Rule") -> str:
    return f"{rule.name}*" if rule.pattern_type == "prefixed" else rule.name


def _rule(shown: Any) -> "Rule":
    from streamlog.acl.rules import Rule

    return Rule.model_validate(shown)


def _ask(servers: str, filters: list["RuleFilter"]) -> list[Any]:
    """What ``rules.list`` answers to each."""

    async def asked() -> list[Any]:
        async with cluster_at(servers) as cluster:
            return [
                await cluster.operate("rules.list", {"wanted": it.model_dump(mode="json")})
                for it in filters
            ]

    return run(asked())


def _listed(answers: list[Any]) -> list[tuple["Rule", str]]:
    """Each rule once, and where it stands."""
    found: dict[tuple[Rule, str], None] = {}
    for answer in answers:
        for name, where in (("rules", CLUSTER), ("file_rules", FILE)):
            found |= dict.fromkeys((_rule(it), where) for it in answer[name])
    return list(found)
