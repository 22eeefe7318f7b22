"""The duplicate window after a start or a change of leaders: out of a snapshot and the log."""
