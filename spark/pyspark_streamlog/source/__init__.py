"""What the driver plans: batch reads and streaming reads, from options to input partitions."""
