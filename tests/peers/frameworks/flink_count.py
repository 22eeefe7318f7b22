"""PyFlink: counts the records of each key of ``in``, in a Kafka sink; each new count goes to ``out``.

    flink_count.py <servers> <folder> <at-least-once | exactly-once> <folder of the connector's archive>

Its state, and which transactions are to be committed, are in checkpoints in the folder: it goes on from the last one.
"""

import sys
from pathlib import Path

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

SERVERS, FOLDER, GUARANTEE, JARS = sys.argv[1], Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4])

settings = {
    "parallelism.default": "2",
    "pipeline.jars": ";".join(
        f"file://{it}" for it in JARS.glob("flink-sql-connector-kafka-*.jar")
    ),
    "execution.checkpointing.interval": "1 s",
    "execution.checkpointing.dir": f"file://{FOLDER}",
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "1 s",
}
whole = [it.parent for it in FOLDER.glob("*/chk-*/_metadata")]
if whole:
    last = max(whole, key=lambda it: it.stat().st_mtime)
    settings["execution.state-recovery.path"] = f"file://{last}"
config = Configuration()
for name, value in settings.items():
    config.set_string(name, value)
table = TableEnvironment.create(
    EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(config).build()
)
table.execute_sql(f"""
    CREATE TABLE coming (k STRING, v STRING) WITH (
        'connector' = 'kafka', 'topic' = 'in', 'properties.bootstrap.servers' = '{SERVERS}',
        'properties.group.id' = 'flink', 'scan.startup.mode' = 'earliest-offset',
        'key.format' = 'raw', 'key.fields' = 'k', 'value.format' = 'raw', 'value.fields-include' = 'EXCEPT_KEY'
    )
""")
table.execute_sql(f"""
    CREATE TABLE counted (k STRING, n STRING, PRIMARY KEY (k) NOT ENFORCED) WITH (
        'connector' = 'upsert-kafka', 'topic' = 'out', 'properties.bootstrap.servers' = '{SERVERS}',
        'key.format' = 'raw', 'value.format' = 'raw', 'value.fields-include' = 'EXCEPT_KEY',
        'sink.delivery-guarantee' = '{GUARANTEE}', 'sink.transactional-id-prefix' = 'flink',
        'properties.transaction.timeout.ms' = '60000'
    )
""")
table.execute_sql(
    "INSERT INTO counted SELECT k, CAST(COUNT(*) AS STRING) FROM coming GROUP BY k"
).wait()
