"""Streams as Apache Iceberg tables, and a view of both.

::

    reader = streamlog.lake.union("flights", "lake.flights", servers="node-1:9092")   # table, then log

``position`` decides, without I/O, what is read next: the offsets stand in the summaries of the table's snapshots.
``catalog`` opens catalogs as PyIceberg configures them; ``table`` makes, reads and commits to tables; ``schema`` has
their types, and ``columns`` says how records become rows of them, or dead letters. ``range_writer`` turns a piece of
the log into ``data_files``, on an executor or here. ``job`` is the driver: rounds of look, write, commit; Spark's are
in ``pyspark_streamlog.lake``. ``lag`` says how far behind a table is. ``maintain`` compacts, expires and cleans up;
``upkeep_thread`` has it done while a job goes on.
``union_view`` reads a table and what follows it in the log.

PyIceberg is needed (``pip install 'streamlog[lake]'``), and Spark only for jobs on executors.
"""

from streamlog.lake.catalog import TableName as TableName
from streamlog.lake.union_view import union as union
from streamlog.lake.union_view import union_plan as union_plan
