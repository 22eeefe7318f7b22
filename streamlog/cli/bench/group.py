import typer

from streamlog.cli.bench import consume, failover, latency, publish

app = typer.Typer(help="Measure your own cluster.", no_args_is_help=True)

for command in (publish.publish, latency.latency, consume.consume, failover.failover):
    app.command()(command)
