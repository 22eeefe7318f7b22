"""Schemas of values as texts: what is in them, and whether they can be columns of a table. Pure."""
