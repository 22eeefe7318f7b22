"""What each request of a producer or a consumer does on the wire, compiled."""
