"""Messages that are deleted one by one: on request, by their TTL, by a limit for each subject."""
