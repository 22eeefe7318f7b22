import typer

from streamlog.cli.cluster import check, features, force, info, leaders, nodes, quorum

app = typer.Typer(help="Look at the cluster, and change its nodes.", no_args_is_help=True)

for command in (
    info.info,
    check.check,
    nodes.nodes,
    nodes.drain,
    nodes.remove_node,
    leaders.elect_leader,
    leaders.rebalance,
    quorum.quorum,
    quorum.transfer_controller,
    quorum.add_voter,
    quorum.remove_voter,
    features.features,
    features.upgrade,
    force.recover_quorum,
):
    app.command()(command)
