"""The socket API: Kafka's protocol on one port.

``listener`` accepts; a ``connection`` reads frames, has each answered before it takes the next, and
writes the answer; ``dispatch`` finds the handler; a file in ``handlers`` translates one API and
decides nothing. ``partition_fetch`` is one partition's part of a Fetch, for a consumer or for a
replica; ``fetch_session`` what one caller fetches, from request to request; ``session_cache`` which
of these are kept. ``metadata_fetch`` hands fetches of the metadata log to the quorum. ``channel``
is a non-blocking socket, ``sendfile`` moves a slice of a segment into it.

Invariants:

- Requests of a connection are answered in order; one at a time, so a long poll holds back those
  behind it.
- Record bytes go from the page cache to the socket without passing through Python, in bounded
  chunks, so that no connection holds the event loop. What is not in the page cache is read ahead in
  a worker thread.
- Memory of a connection: what has arrived of one request, and one answer without its records. A
  reader who does not read costs that and an open file, until the idle timeout.
- What breaks the protocol closes its connection, with one log line and a count, and nothing else.
- A poll's wake-up costs what has changed, however many partitions it waits for, and in a fetch
  session a request does, too; after some milliseconds of looking at partitions others get their
  turn.
- What a member of another cluster says is not taken in.
- A stopping listener answers the polls that wait, at once, with what there is.

The server does not own partitions or metadata; ``context`` says what it needs of them.
"""
