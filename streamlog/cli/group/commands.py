"""The commands of ``streamlog group``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamlog.cli.group import reset
from streamlog.cli.group.client import CLASSIC, ask
from streamlog.cli.options.names import GroupName
from streamlog.cli.options.options import SERVERS, Json, Servers, Yes
from streamlog.cli.output import print_json, print_pairs, print_table, say
from streamlog.errors import GroupNotEmpty, InvalidRequest

if TYPE_CHECKING:
    from streamlog.cli.group.client import GroupClient


def list_groups(servers: Servers = SERVERS, as_json: Json = False) -> None:
    """All groups: state, members, and how many records they have yet to read in all."""
    found = ask(servers, lambda asker: asker.all())
    if as_json:
        print_json(found.groups)
    else:
        names = ("group", "type", "state", "coordinator", "members", "partitions", "lag")
        rows = ([row[name] for name in names] for row in found.groups)
        print_table([name.upper() for name in names], rows)
    if found.missing_nodes:
        say(missing(found.missing_nodes), to_stderr=True)
        raise typer.Exit(1)


def missing(nodes: Sequence[int]) -> str:
    """What is to be said of nodes whose groups are not known."""
    silent = [str(it) for it in nodes if it >= 0]
    said = [f"no answer from node {', '.join(silent)}"] if silent else []
    if len(silent) < len(nodes):
        said.append("partitions of __consumer_offsets have no leader")
    return f"some groups are not listed: {' and '.join(said)}; `streamlog cluster check` says what is away"


def info(group: GroupName, servers: Servers = SERVERS, as_json: Json = False) -> None:
    """One group: who is in it, who reads what, and how far each partition is read."""
    found = ask(servers, lambda asker: asker.describe(group))
    if as_json:
        print_json(found)
        return
    coordinator = found["coordinator"]
    print_pairs(
        [
            ("Group", found["group"]),
            ("Type", found.get("group_type", CLASSIC)),
            ("State", found["state"]),
            ("Assignor", found["protocol"]),
            ("Coordinator", None if coordinator is None else f"node {coordinator}"),
            ("Lag", found["lag"]),
        ]
    )
    say()
    members = {it["member_id"]: it for it in found["members"]}
    if members:
        print_table(
            ("MEMBER", "CLIENT", "HOST", "READS"),
            (
                (it["instance_id"] or it["member_id"], it["client_id"], it["host"], _reads(it))
                for it in members.values()
            ),
        )
        say()
    print_table(
        ("STREAM", "PARTITION", "COMMITTED", "END", "LAG", "CLIENT", "METADATA"),
        (
            (
                it["stream"],
                it["partition"],
                it["committed_offset"],
                it["end_offset"],
                it["lag"],
                members.get(it["member_id"], {}).get("client_id"),
                _printable(it["metadata"]),
            )
            for it in found["partitions"]
        ),
    )


def _reads(member: dict[str, Any]) -> list[str]:
    """``orders/0+1`` for each stream."""
    numbers: dict[str, list[str]] = {}
    for it in member["partitions"]:
        numbers.setdefault(it["stream"], []).append(str(it["partition"]))
    return [f"{stream}/{'+'.join(them)}" for stream, them in numbers.items()]


def _printable(metadata: str) -> str:
    """It is the clients' own; some put a NUL behind it."""
    return "".join(it for it in metadata if it.isprintable())


Wanted = dict[str, list[dict[str, Any]]]
"""What each group is to forget; all where nothing is named."""


def remove(
    groups: Annotated[
        list[str], typer.Argument(metavar="GROUP...", help="The groups' names (group.id).")
    ],
    offsets: Annotated[
        list[str] | None,
        typer.Option(
            "--offsets",
            metavar="STREAM",
            help="Only what they committed in this stream; may be repeated.",
        ),
    ] = None,
    yes: Yes = False,
    servers: Servers = SERVERS,
    as_json: Json = False,
) -> None:
    """Remove groups without members. All are looked at before any of them goes."""
    wanted = ask(servers, lambda asker: _look(asker, groups, offsets))
    what = "what {} committed in {}" if offsets else "{} and what they committed"
    named = what.format(", ".join(wanted), ", ".join(offsets or ()))
    if not yes:
        typer.confirm(f"Remove {named}, for ever?", abort=True, err=True)
    done: list[dict[str, Any]] = []
    try:
        ask(servers, lambda asker: _remove(asker, wanted, done))
    finally:
        if as_json:
            print_json({"removed": done})
        else:
            for it in done:
                say(_said(it))


async def _look(asker: "GroupClient", groups: list[str], streams: list[str] | None) -> Wanted:
    """Raises GroupNotFound, GroupNotEmpty, InvalidRequest: then none is touched."""
    wanted: Wanted = {}
    for name in dict.fromkeys(groups):
        group = await asker.describe(name)
        if not streams:
            await asker.operate("delete", group=name, validate_only=True)
            wanted[name] = []
            continue
        wanted[name] = [
            {"stream": it["stream"], "partition": it["partition"]}
            for it in group["partitions"]
            if it["stream"] in streams and it["committed_offset"] is not None
        ]
        for stream in streams:
            if not any(it["stream"] == stream for it in wanted[name]):
                raise InvalidRequest(
                    f"group {name!r} has committed nothing in {stream!r};"
                    f" `streamlog group info {name}` shows where it has"
                )
        for it in group["members"]:
            if any(tp["stream"] in streams for tp in it["partitions"]):
                reader = it["instance_id"] or it["client_id"] or it["member_id"]
                raise GroupNotEmpty(
                    f"{reader} at {it['host']} reads that for group {name!r}; stop the group's members"
                    " first, or have them unsubscribe"
                )
    return wanted


async def _remove(asker: "GroupClient", wanted: Wanted, done: list[dict[str, Any]]) -> None:
    """``done`` has what is gone, also when one of them is refused."""
    for name, places in wanted.items():
        if not places:
            await asker.delete(name)
            done.append({"group": name, "offsets": None})
            continue
        numbers: dict[str, list[int]] = {}
        for it in places:
            numbers.setdefault(it["stream"], []).append(it["partition"])
        asked = [{"stream": stream, "partitions": them} for stream, them in numbers.items()]
        answer = await asker.operate("delete_offsets", group=name, offsets=asked)
        gone = [it for it in answer if it["error"] is None]
        if gone:
            forgotten = [{"stream": it["stream"], "partition": it["partition"]} for it in gone]
            done.append({"group": name, "offsets": forgotten})
        for it in answer:
            if it["error"] is not None:
                raise InvalidRequest(f"group {name!r}, {it['stream']}: {it['message']}")


def _said(done: dict[str, Any]) -> str:
    if done["offsets"] is None:
        return f"group {done['group']} is removed"
    streams = ", ".join(dict.fromkeys(tp["stream"] for tp in done["offsets"]))
    return f"group {done['group']} has forgotten {streams}"


def config(
    group: GroupName,
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=VALUE...]", help="Configs to set, under Kafka's names."),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="NAME", help="Take the node's setting; may be repeated."),
    ] = None,
    servers: Servers = SERVERS,
    as_json: Json = False,
) -> None:
    """Show or set the configs of a share group, such as share.auto.offset.reset."""
    changes: list[dict[str, str | None]] = [{"name": it, "value": None} for it in unset or ()]
    for it in settings or ():
        name, equals, value = it.partition("=")
        if not equals:
            raise InvalidRequest(f"{it!r}: write NAME=VALUE, or --unset NAME")
        changes.append({"name": name, "value": value})

    async def done(asker: "GroupClient") -> Any:
        if changes:
            await asker.operate("set_configs", group=group, configs=changes)
        return await asker.operate("configs", group=group)

    found = ask(servers, done)
    if as_json:
        print_json(found)
    else:
        rows = ((it["name"], it["value"]) for it in found["configs"])
        print_table(("CONFIG", "VALUE"), rows)


app = typer.Typer(
    help="Look at consumer groups, and change what they committed.", no_args_is_help=True
)

app.command("ls")(list_groups)
app.command()(info)
app.command()(reset.reset_offsets)
app.command("rm")(remove)
app.command()(config)
