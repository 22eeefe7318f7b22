"""HTTP for those who watch a node: metrics, liveness, readiness, and a page that links to them.

- ``/metrics``: Prometheus text. What happens is counted where it happens (``streamlog.metrics``);
  what *is* (offsets, sizes, replicas of each partition) is read at scrape time from the partitions'
  immutable statistics.
- ``/healthz``: 200 whenever the event loop can answer, no more: supervisors kill what fails it.
- ``/readyz``: 200 when the node can do all of its work, else 503 with the reasons. Without NATS a
  node is not ready for ingest although reads go on, and the reason says so.

Answers are small and never block the loop: the text of a large scrape is made in a worker thread.
"""
