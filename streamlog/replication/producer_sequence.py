"""The numbers that a producer gives its records, partition by partition: 0 to 2**31 - 1, and on
from 0.
"""

from typing import Final

SEQUENCE_MAX: Final = 2**31 - 1


def following(sequence: int, count: int) -> int:
    """The number after ``count`` records of which the first has ``sequence``."""
    return (sequence + count) & SEQUENCE_MAX
