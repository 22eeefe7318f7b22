"""Bytewax: ``bytewax_count.py SERVERS FOLDER`` counts the records of each key of ``in`` into ``out``."""

import sys

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kafka
from bytewax.dataflow import Dataflow
from bytewax.run import cli_main

servers, _ = sys.argv[1:]
flow = Dataflow("count")
records = kafka.input("in", flow, brokers=servers.split(","), topics=["in"], tail=True)
keyed = op.map("key", records.oks, lambda it: (it.key.decode(), it.value))
counted = op.stateful_map("count", keyed, lambda state, _: ((state or 0) + 1,) * 2)
named = op.map("name", counted, lambda it: KafkaSinkMessage(it[0].encode(), str(it[1]).encode()))
kafka.output("out", named, brokers=servers.split(","), topic="out")
cli_main(flow)
