"""What tests do in the place of ``Partition.carry_out``."""

from streamlog.partition.state import Step


def acknowledge(step: Step) -> None:
    """Tell those who wait what has become of it."""
    for item in step.commits:
        item.ack.committed(item.base_offset)
    for item in step.failed:
        assert step.error is not None
        item.ack.failed(step.error)
