"""DIRECT.GET: messages read from any replica in sync: requests, queries, replies."""
