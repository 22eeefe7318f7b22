"""Messages of a partition for eyes: the tail, pages of them, and a search.

``partition_source`` reads a partition in bounded pieces, here or at its leader; ``decode`` makes text
of keys and values; ``message_filter`` says which are wanted; ``browse`` has the limits of one search;
``tail`` follows the end. A payload is untrusted: it is cut to a limit before anything is made of it,
and leaves here as text in JSON.
"""
