"""This node's replica of the metadata log: the driver of the Raft core, its log and vote on disk,
its messages to other members."""
