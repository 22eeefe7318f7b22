"""Build a node, start it in order, stop it in the opposite order.

``node`` is the composition root: the only place that knows all services. Its two lists, what starts
when and what stops when, are to be read as the life of the process. One root task group holds every
task; a service that fails unexpectedly ends the process, because a restart recovers and a limping
node does not.

``logs`` writes one line for each event on standard error and never a secret; ``loop_lag`` measures
how late the event loop is.

Not here: arguments (``cli``), decisions (every package its own).
"""
