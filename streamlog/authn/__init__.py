"""Who asks, and how that is proved: SCRAM, PLAIN, OAUTHBEARER, certificates, NKeys. Pure: bytes, keys
and the time come in, a verdict goes out.

Nothing here reads a file, a socket or a clock. Read ``principal`` and ``session`` first. ``acl`` decides
what a principal may do.
"""
