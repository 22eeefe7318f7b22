"""Arrow record batches into a stream: each row once, however often its task is attempted."""
