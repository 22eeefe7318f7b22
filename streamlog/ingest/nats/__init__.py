"""The connection to NATS: login, TLS, reads straight into one buffer, subscriptions, errors."""
