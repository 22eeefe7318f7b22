"""What every HTTP port of streamlog has: who may come, how long they may take, TLS, tokens."""
