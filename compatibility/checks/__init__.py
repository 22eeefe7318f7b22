"""The columns: what each client is asked to do, and what has to come of it."""
