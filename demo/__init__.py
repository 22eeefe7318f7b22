"""The main job on real data: what ``make demo`` runs.

All 336,776 flights that left New York in 2013 go in over plain NATS, come back over Kafka's
protocol, and are computed upon by Spark where they lie; each answer is checked against the file
they came from. The exit code is 0 only if every record and every figure is right. Nothing stays
running or on the disk, unless asked to with ``--keep``.

Only public clients are used: nats-py, confluent-kafka, PySpark. Reading order: ``flights`` (the
data), ``servers``, ``publish``, ``read_back``, ``compute``, ``story`` (all of it), ``__main__``.
"""
