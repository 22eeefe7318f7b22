import typer

from streamlog.cli.ledger import broadcast, configure, deliver, info, key, serve, verify

app = typer.Typer(
    help="Order a stream into hash-chained blocks, the same on every node.", no_args_is_help=True
)

app.command()(serve.serve)
app.command()(broadcast.broadcast)
app.command()(deliver.deliver)
app.command()(configure.configure)
app.command()(info.info)
app.command()(verify.verify)
app.command("keygen")(key.new_key)
