"""The NATS protocol: frames, subscriptions and connections without I/O; the node's own port."""
