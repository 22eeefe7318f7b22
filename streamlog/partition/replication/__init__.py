"""Following other nodes' logs: fetchers and their sessions, truncation to the leader's history,
the in-sync replicas that this node's leaders propose."""
