"""Nodes of the cluster: registration and heartbeats, sessions, leases, clocks, what keeps a node
from its work, and the node's own folder."""
