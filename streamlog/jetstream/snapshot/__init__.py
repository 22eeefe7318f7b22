"""STREAM.SNAPSHOT and STREAM.RESTORE: a stream as a tar that nats-server understands, and back."""
