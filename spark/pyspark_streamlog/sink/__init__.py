"""The sink: tasks that write rows to partitions, each row once."""
