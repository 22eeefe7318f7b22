"""Figures of streamlog beside its peers: same machine, same run, the same client programs.

``python -m benchmarks`` starts nats-server with JetStream and ``streamlog dev``, runs each case on
both in turn (interleaved rounds, so that a slow minute of the machine hits both), and reports
medians and their ratios. The clients are processes of their own (:mod:`benchmarks.publisher`,
:mod:`benchmarks.consumer`) that print one line of JSON.

What keeps it honest:

- one publisher program for both sides, over a raw socket, with everything built before the clock
  starts; the rows "nothing stored" show that it is not what limits;
- a run fails if a single error comes back or if fewer records are stored than were acknowledged;
- the processor time of all server processes is read from ``/proc`` and reported beside the rate;
- what is aimed at stands in the code beside what is measured (``case.Target``);
- peers run with their own defaults; what is different (a sync before the ack) is said in the row.
"""
