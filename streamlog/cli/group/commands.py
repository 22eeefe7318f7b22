import typer

from streamlog.cli.group import info, listing, removal, reset

app = typer.Typer(
    help="Look at consumer groups, and change what they committed.", no_args_is_help=True
)

app.command("ls")(listing.list_groups)
app.command()(info.info)
app.command()(reset.reset_offsets)
app.command("rm")(removal.remove)
