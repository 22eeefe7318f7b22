"""What holds for every test, whatever it is about."""

import gc
import signal
import sys
import warnings
from collections.abc import Generator

import pytest


def pytest_configure() -> None:
    """A shell has what runs in its background ignore these, and so would every child of ours."""
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """What a failed test has left open is its own affair.

    Its traceback keeps sockets and tasks alive, and a warning of them, which is an error, would
    come at some collection in the midst of an innocent test.
    """
    failed_before = item.session.testsfailed
    result = yield
    if item.session.testsfailed > failed_before:
        _let_go()
    return result


def _let_go() -> None:
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        vars(sys).pop(name, None)
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
    finally:
        sys.unraisablehook = before
