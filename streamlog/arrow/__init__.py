"""A stream as Arrow record batches, and back, without Spark.

::

    reader = streamlog.arrow.read("flights", servers="node-1:9092")   # a pyarrow.RecordBatchReader

A read: ``stream_read`` checks the arguments; ``options`` has what was asked for. ``location`` lists the
partitions, either of ``files`` (a folder or a URL of one) or of ``servers``; ``store`` reads what tiered storage has
from its objects, and the rest from ``servers``. ``offset_ranges`` fixes the range of
offsets to read of each partition, once, and never past the high watermark; ``filters`` makes the ranges smaller.
``range_reader`` feeds record batches to the decoder of ``streamlog.record`` and yields Arrow record batches;
``filters`` leaves out what does not match; ``data_loss`` reports rows that are missing.

A write: ``stream_write`` cuts rows into tasks; ``sink`` turns Arrow record batches into record batches and has the
leaders commit them, each row once however often the write is attempted.

``formats`` are files that records are exported to and imported from.

Reading leaves nothing on a node: no lock, no repair, no group. Spark's data source (``pyspark_streamlog``) reads and
writes by the same modules, on its executors. They need pyarrow (``pip install 'streamlog[arrow]'``), and no Spark.
"""

from streamlog.arrow.data_loss import DataLoss as DataLoss
from streamlog.arrow.options.security_files import SecurityFiles as SecurityFiles
from streamlog.arrow.stream_read import ReadPlan as ReadPlan
from streamlog.arrow.stream_read import plan as plan
from streamlog.arrow.stream_read import read as read
from streamlog.arrow.stream_write import write as write
