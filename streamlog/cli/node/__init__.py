"""``streamlog serve`` and ``health``: a node as a process, and whether it is well."""
