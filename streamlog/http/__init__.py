"""HTTP: metrics, liveness, readiness, and the console with its JSON API.

``server``, ``connection_limits``, ``hosts`` and ``tokens`` are what every HTTP port of streamlog has:
who may connect, how long they may take, TLS, tokens. ``site`` the routes of a node; ``access`` who may
read what; ``readiness`` whether the node takes work; ``gauges`` what is read at a scrape;
``console`` the page.
"""
