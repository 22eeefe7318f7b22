"""Which rules are in force on this node, and what becomes of requests that they do not allow.

``acl`` decides, purely; here its rules come together from the metadata and from a file, which is
read again when it changes. ``Permissions`` is what one principal may do, remembered for as long as the
rules stay the same: one for each connection, and for each request that comes over NATS or HTTP. A
principal without the right to know of a stream is shown an image without it (``visibility``), so that
its requests are answered by the very code that answers for streams that do not exist.

- ``service`` the rules in force on this node; ``rule_file`` those of the file.
- ``permissions`` of one principal, by a ``decision_cache``; ``visibility`` the node as it may see it.
- ``signature`` who signed a NATS request, and that it comes once only.
- ``audit`` administrative acts and refusals, one line each.

Where no authentication is on, no client has ``Permissions``, and everything is allowed.
"""
