import typer

from streamlog.cli.cluster import check, features, force, info, leaders, nodes, quorum

app = typer.Typer(help="Look at the cluster, and change its nodes.", no_args_is_help=True)

for command in (
    info.info,
    check.check,
    nodes.nodes,
    nodes.drain,
    nodes.remove,
    leaders.elect,
    leaders.rebalance,
    quorum.quorum,
    quorum.move_controller,
    quorum.add_voter,
    quorum.remove_voter,
    features.features,
    features.upgrade,
    force.force_quorum,
):
    app.command()(command)
