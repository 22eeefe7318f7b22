"""Which NATS clients work with a node's own NATS port: each cell of the table is a program run.

``python -m compatibility.port`` starts three linked nodes and one that is alone, without a
nats-server, has each client do each thing, and writes the table of docs/compatibility.md. A client
is a folder in ``compatibility/clients`` whose ``peer.toml`` says ``speaks = "nats"``; its program
takes

    PROGRAM SERVERS VERB {}

with SERVERS as addresses between commas. It compares by itself what comes with what it has sent,
and prints a JSON object: ``{"done": true}``, ``{"error": TEXT}`` or ``{"not_offered": WHY}``; for
``version`` ``{"version": "1.2.3"}``. ``reconnect`` and ``failover`` print ``{"ready": true}`` first,
whereupon the node is killed.

- ``checks`` the columns
- ``page`` the table
"""
