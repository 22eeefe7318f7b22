"""A channel on an ordering node: it reads the channel's stream, cuts its records into blocks, and
publishes records to it."""
