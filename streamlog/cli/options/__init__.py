"""Options that commands share: where the nodes are, TLS, logins, keys, positions."""
