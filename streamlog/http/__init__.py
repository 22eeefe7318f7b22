"""HTTP: metrics, liveness, readiness, and the console with its JSON API.

``server``, ``connection_limits``, ``hosts`` and ``tokens`` are what every HTTP port of streamlog has:
who may connect, how long they may take, TLS, tokens. ``endpoints`` the routes of a node, with
liveness and readiness; ``access`` who may read what; ``gauges`` what is read at a scrape;
``console`` the page.
"""
