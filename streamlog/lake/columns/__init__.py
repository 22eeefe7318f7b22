"""What columns a table has, and how a record becomes a row of it, or a dead letter."""
