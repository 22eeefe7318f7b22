"""Gauges that are read when Prometheus scrapes: nodes, groups and their lag, partitions, the machine."""
