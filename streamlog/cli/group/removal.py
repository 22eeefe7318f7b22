from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamlog.cli.group.client import ask, check_empty
from streamlog.cli.options.options import SERVERS, Json, Servers, Yes
from streamlog.cli.output import print_json, say
from streamlog.errors import GroupNotEmpty, InvalidRequest

if TYPE_CHECKING:
    from streamlog.cli.group.client import GroupClient
    from streamlog.model import TopicPartition

Wanted = dict[str, "list[TopicPartition]"]
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
    """Remove groups that nobody is in. All are looked at before any of them goes."""
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
    for group_id in dict.fromkeys(groups):
        group = await asker.existing(group_id)
        if not streams:
            check_empty(group)
            wanted[group_id] = []
            continue
        committed = await asker.groups.committed(group_id)
        wanted[group_id] = sorted(tp for tp in committed if tp.stream in streams)
        for stream in streams:
            if not any(tp.stream == stream for tp in wanted[group_id]):
                raise InvalidRequest(
                    f"group {group_id!r} has committed nothing in {stream!r};"
                    f" `streamlog group info {group_id}` shows where it has"
                )
        for member in group.members:
            if any(tp.stream in streams for tp in member.partitions):
                raise GroupNotEmpty(
                    f"{member.name} reads that for group {group_id!r}; stop the group's members"
                    " first, or have them unsubscribe"
                )
    return wanted


async def _remove(asker: "GroupClient", wanted: Wanted, done: list[dict[str, Any]]) -> None:
    """``done`` has what is gone, also when one of them is refused."""
    for group_id, tps in wanted.items():
        if tps:
            await asker.groups.delete_offsets(group_id, tps)
        else:
            await asker.groups.delete(group_id)
        done.append({"group": group_id, "offsets": [tp._asdict() for tp in tps] if tps else None})


def _said(done: dict[str, Any]) -> str:
    if done["offsets"] is None:
        return f"group {done['group']} is removed"
    streams = ", ".join(dict.fromkeys(tp["stream"] for tp in done["offsets"]))
    return f"group {done['group']} has forgotten {streams}"
