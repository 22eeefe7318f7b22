"""The status page: what there is, how far it is, and what is wrong right now, in words.

- ``/``: one page of static files, which lie in ``static/``. No build step; nothing is loaded from
  anywhere else, so that it works where there is no internet.
- ``/api/...``: the same as JSON, and as server-sent events for what is live.

The cores are pure: ``view`` (what is shown), ``findings`` (what is wrong), ``event_log`` (what has
changed), ``rates``. The shells hold connections, each kind with a limit: ``live``, ``tail``.

Everything here reads immutable values, made when they are asked for; without viewers it costs one
look a second. A page of rows is at most ``ROWS_MAX``, whatever there is in the cluster.

Names and payloads are untrusted text: they leave here as JSON, and the page sets them as text, never
as HTML. The policy that goes with each answer lets nothing run but our own file.
"""
