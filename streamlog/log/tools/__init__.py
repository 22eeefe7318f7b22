"""Looks at folders of logs as they lie there: checks them, and prints their batches."""
