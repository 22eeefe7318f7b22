"""NATS frames to records, compiled (``*.pyx``); the ``.pyi`` beside each says what it means."""
