"""Who may do what on this node, and what becomes of those who may not.

``streamlog.authn`` decides, purely; here its rules come together from the metadata and from a
file, which is read again when it changes. ``Access`` is what one principal may do, remembered for
as long as the rules stay the same: one for each connection, and for each request that comes over
NATS or HTTP. Whoever may not know of a stream is shown an image without it (``visible``), so that
what is asked of it is answered by the very code that answers for streams that are not there.

- ``authority`` the rules in force; ``rule_file`` those of the file.
- ``access`` one principal; ``visible`` the image as that one sees it.
- ``signature`` who signed a NATS request, and that it comes once only.
- ``audit`` administrative acts and refusals, one line each.

Where no authentication is on, nobody has an ``Access``, and everything is allowed.
"""
