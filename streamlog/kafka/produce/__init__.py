"""What a Produce waits for, and the ids of idempotent producers."""
