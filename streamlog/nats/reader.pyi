"""Frames out of the pieces that a socket brings, compiled: the half of a connection that reads."""

from streamlog.nats.router import Endpoint

SOURCES: int

class FrameReader(Endpoint):
    """One direction of a connection; a compiled subclass knows its frames."""
