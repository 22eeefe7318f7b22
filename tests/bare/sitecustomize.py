"""For programs that tests start: a wall clock that is wrong by ``TEST_CLOCK_AHEAD_S``."""

import os
import time

if ahead := os.environ.get("TEST_CLOCK_AHEAD_S"):
    _ns, _s, _ahead_s = time.time_ns, time.time, int(ahead)
    time.time_ns = lambda: _ns() + _ahead_s * 1_000_000_000
    time.time = lambda: _s() + _ahead_s
