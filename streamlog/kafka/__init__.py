"""The socket API: Kafka's protocol on one port.

- ``net`` listener, connections, TLS, ``sendfile``, limits; ``auth`` logins and rights.
- ``dispatch`` finds the handler; a function in ``handlers`` translates one API. ``handlers/fetch``
  has delayed fetches.
- ``fetch`` fetch sessions, and what one partition adds to an answer; ``producer_ids``.
- ``config_entries`` settings in Kafka's form; ``quotas`` rate limits; ``advertised_listeners``
  nodes, leaders and replicas in Kafka's form; ``refusal`` errors.
- ``read_barrier`` waits for the newest metadata; ``context`` is what is needed of the node.

Invariants:

- Requests of a connection are answered in order; one at a time, so a long poll holds back those
  behind it.
- Record bytes go from the page cache to the socket without passing through Python, in bounded
  chunks, so that no connection holds the event loop. What is not in the page cache is read ahead in
  a worker thread.
- Memory of a connection: what has arrived of one request, and one answer without its records. A
  reader that does not read costs that and an open file, until the idle timeout.
- What breaks the protocol closes its connection, with one log line and a count, and nothing else.
- A long poll's wake-up costs what has changed, however many partitions it waits for, and in a fetch
  session a request does, too.
- What a member of another cluster sends is not taken in.
- A stopping listener answers the polls that wait, at once, with what there is.
"""
