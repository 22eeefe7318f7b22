"""Streams read from running nodes by Fetch requests."""
