"""``streamlog dev``: a development cluster on this machine, with an embedded nats-server."""
