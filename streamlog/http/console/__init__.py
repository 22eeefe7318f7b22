"""The console: what there is, how far it is, what is in it, and what is wrong right now, in words.

- ``/``: one page of static files, which lie in ``static/``. No build step; nothing is loaded from
  anywhere else, so that it works where there is no internet.
- ``/api/...``: the same as JSON, and as server-sent events for what is live.

The cores are pure: ``view`` (what is shown), ``node_findings`` (what is wrong), ``event_log`` (what has
changed), ``overview`` and ``names`` (all streams, counted and listed), ``traffic`` (rates). The shells
hold connections, each kind with a limit: ``live``, and ``messages`` for what is in a stream.

What it costs does not grow with the number of streams. Without viewers it is one look a second at
this node. While a client watches, a look is told of the partitions that have moved since the last one,
images name the streams that they change, and rows and lists are kept until then. A page of rows is
made once for all who watch it, and they are sent the rows that have changed.

Names and payloads are untrusted text: they leave here as JSON, and the page sets them as text, never
as HTML. The policy that goes with each answer lets nothing run but our own file.
"""
