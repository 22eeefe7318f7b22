"""Mirrors and sources: streams that take their messages from other streams."""
