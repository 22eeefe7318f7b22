"""Who asks over NATS, what they may do and see."""
