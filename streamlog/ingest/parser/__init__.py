"""NATS frames to records, compiled; the plain twins beside them are what they are held to."""
