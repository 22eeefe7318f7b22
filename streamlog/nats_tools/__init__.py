"""What the command line and benchmarks publish and examine NATS with; no node runs any of it."""
