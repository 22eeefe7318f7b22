"""The command line: arguments in, calls down, words or JSON out. No decisions of its own.

Each command, or group of them, is a module. What is asked of a running node goes over the socket
API, as anybody else's client would ask: mostly an operation of ``control`` by its name. ``publish``
goes over NATS, ``bench`` over both, as fast as it can. ``log`` reads files without a node.
``serve`` is one node. ``dev`` is for trying out: an embedded nats-server, and nodes as children
(``dev_cluster``), which die with it, however it dies.

Exit codes: 0 done; 1 it failed, or something was found; 2 a wrong argument or setting, said in one
line on standard error that names the key and the remedy. ``--json`` prints one JSON document, or
one a line where there is no end to them; ``--yaml`` the same as YAML.
"""

from streamlog.cli.program import main

__all__ = ["main"]
