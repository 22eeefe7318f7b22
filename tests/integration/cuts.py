"""Ways to cut the network of three nodes, for a given victim. Each is silent."""

from collections.abc import Callable
from typing import Final

from benchmarks.network import HOST, Network

NODES: Final = (1, 2, 3)

Cut = Callable[[Network, int], None]
"""What is cut, for a given victim."""


def isolated(network: Network, victim: int) -> None:
    """From the other nodes; publishers and consumers still reach it."""
    network.split([victim], others(victim))


def lost(network: Network, victim: int) -> None:
    """From everybody, the nats-server too."""
    network.split([victim], [*others(victim), HOST])


def mute(network: Network, victim: int) -> None:
    """It hears the other nodes, but they do not hear it."""
    network.cut(victim, *others(victim))


def deaf(network: Network, victim: int) -> None:
    """They hear it, but it does not hear them."""
    for other in others(victim):
        network.cut(other, victim)


def bridge(network: Network, victim: int) -> None:
    """The other two do not reach each other; both reach the victim."""
    one, two = others(victim)
    network.split([one], [two])


def all_apart(network: Network, victim: int) -> None:
    """Nobody reaches anybody."""
    network.split(*([i] for i in NODES))


def without_nats(network: Network, victim: int) -> None:
    """Publishers and consumers do not reach it; the other nodes do."""
    network.split([victim], [HOST])


CUTS: Final[tuple[Cut, ...]] = (isolated, lost, mute, deaf, bridge, all_apart, without_nats)


def others(victim: int) -> list[int]:
    return [i for i in NODES if i != victim]
