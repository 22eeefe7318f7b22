"""Servers of tests and benchmarks never meet on one port."""

import subprocess
import sys

import pytest

from streamlog.cli.dev.dev_layout import CHOICES
from tools.nodes.ports import PORTS, Ports, free_port

ASK = "from tools.nodes.ports import free_port; print(*[free_port() for _ in range({})])"


def ask(count: int) -> set[int]:
    command = [sys.executable, "-c", ASK.format(count)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return {int(port) for port in answer.stdout.split()}


def test_a_port_is_handed_out_once() -> None:
    assert len({free_port() for _ in range(300)}) == 300


def test_two_processes_never_get_the_same_port() -> None:
    ours = Ports()
    try:
        taken = {ours.take() for _ in range(250)}
        theirs = ask(250)
    finally:
        ours.close()
    assert len(theirs) == 250
    assert not taken & theirs


def test_ports_are_handed_out_again_only_after_all_others() -> None:
    few = Ports(range(31_900, 31_910), block=5)
    try:
        first = [few.take() for _ in range(10)]
        assert sorted(first) == list(range(31_900, 31_910))
        assert few.take() == first[0]
        with pytest.raises(OSError, match="no port from 31900 to 31909 is free"):
            Ports(range(31_900, 31_910), block=5).take()
    finally:
        few.close()


def test_streamlog_dev_chooses_other_ports() -> None:
    assert not set(CHOICES) & set(PORTS)
