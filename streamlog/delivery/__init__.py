"""Delivery of single records with deadlines, counts and acknowledgements. Pure.

- ``delivery`` which record is delivered next, again, or never again; what is pending.
- ``state_encoding`` the state of a delivery as bytes, and back.

JetStream's consumers and Kafka's share groups use it. It does not know streams, subjects, sockets or clocks: places and
times go in, and what is to be delivered comes out.
"""
