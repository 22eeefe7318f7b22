"""``__activity``: an internal stream of what has become of the metadata, one event for each record.

The leader of its only partition reads the committed metadata log and
appends what that says, in order; the last event tells the next leader where to go on.

- ``events`` one metadata record, and what was there before it, as an event. Pure.
- ``service`` how the stream is kept, which leadership of it there is, and the writer of each.

Invariants: the events of a log are in the order of their metadata offsets, but for repetitions;
nothing committed is left out, but for what a ``gap`` says; an event is appended in the leader epoch
of its publisher or not at all; one append is under way at a time. Neither the metadata nor other
partitions wait for any of it.

Not here: who is to read it, and what becomes of consumer groups, which is no metadata.
"""
