"""``streamlog dev``: a development cluster on this machine, with a nats-server where one is wanted."""
