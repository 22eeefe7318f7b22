"""``streamlog doctor``: looks at what a node stands on, and says what to do about it.

It is run on the node's machine with the node's own configuration, whether the node runs or not. It
changes nothing but a file of its own in the data folder, which it removes. Each area is a module:
``configuration`` (pure), ``limits``, ``disk``, ``nats``, ``network``, ``clocks``; each yields
``Finding`` values, which hold no secret, for secrets are never read into them.
"""
