"""The heap of a Python worker of Spark's, in which tasks run one after the other."""

import gc


def freeze_loaded_modules() -> None:
    """Spare the worker from searching loaded modules for garbage after each task.

    Spark's daemon collects garbage when a task ends, and the worker takes no other task meanwhile. PySpark,
    pandas and pyarrow have so many objects that a profile of short tasks showed it in more than a third of its
    samples. What is frozen is freed as ever when its last reference goes; a cycle of references among it would
    stay, so it is done once a process, after a collection.
    """
    if gc.get_freeze_count() == 0:
        gc.collect()
        gc.freeze()
