"""Message schedules, as JetStream has them (ADR-51): messages that are published later, or again and again.

A schedule is a message of the log, the newest one of its subject: ``Nats-Schedule`` says when, and
``Nats-Schedule-Target`` where to. What it fires is a message like others, which names it (``Nats-Scheduler``)
and says when it fires next (``Nats-Schedule-Next``). So the log is all that there is of a schedule.

- ``schedule_spec``, ``cron``: when a schedule fires, and when after that. Pure.
- ``time_zones``: by their names.
- ``scheduling_rules``: whether a schedule that is published, or ended, is stored. Pure.
- ``scheduled_message``: what a schedule's headers say, and the message that it fires. Pure.
- ``pending_schedules``: the schedules of a log by the time at which they are due. Pure.
- ``log_scan``: what pieces of a log tell of schedules.
- ``firing``: has the partitions that are led here fire.
"""
