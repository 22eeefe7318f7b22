"""JetStream's consumers: their configuration, pull requests and acknowledgements in JetStream's words."""
