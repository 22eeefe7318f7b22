"""Operations on streams, messages, partitions, nodes, users, rules, quotas and groups, without a protocol.

Adapters translate: ``jetstream``, ``kafka``, ``http`` and, through them, the command line. What an
operation means, who may do it, what is logged of it and why it is refused stands here, once. An operation is
asked for by a principal; it checks the right, waits for what was decided before it, has the controller or a
partition's leader carry it out, wherever that is, and raises an error of the tree in ``errors``.

``leaders`` asks partitions' leaders, ``messages`` finds stored messages.
"""
