"""For programs that tests start: a wall clock that is wrong by ``TEST_CLOCK_AHEAD_S``."""

import os
import time

if ahead := os.environ.get("TEST_CLOCK_AHEAD_S"):
    _ns, _s = time.time_ns, time.time
    time.time_ns = lambda: _ns() + int(ahead) * 1_000_000_000
    time.time = lambda: _s() + int(ahead)
