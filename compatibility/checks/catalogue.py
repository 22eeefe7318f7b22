"""All columns, in the order of the table."""

from typing import Final

from compatibility.checks import (
    admin,
    dump,
    failover,
    groups,
    reading,
    sharing,
    transactions,
    writing,
)
from compatibility.checks.check import Check
from compatibility.segments import CODECS

CHECKS: Final = (
    Check("assign", "assign", reading.assign),
    Check("group", "group", groups.group),
    Check("rebalance", "rebalance of three", groups.rebalance),
    Check("resume", "commit, resume", groups.commit_and_resume),
    Check("time", "seek by time", reading.seek_by_time),
    Check("produce", "produce", writing.produce),
    Check("idempotent", "idempotent", writing.idempotent),
    *(Check(f"codec-{codec}", codec, writing.codec(codec)) for codec in CODECS),
    Check("admin-streams", "admin: streams", admin.streams),
    Check("admin-groups", "admin: groups", admin.groups),
    Check("failover", "leader killed", failover.leader_change),
    Check("coordinator", "coordinator killed", groups.coordinator_killed),
    Check("new-protocol", "group, new protocol", groups.new_protocol),
    Check("share", "share group", sharing.share_group),
    Check("transactions", "transactions", transactions.transactions),
    Check("dump", "segment files", dump.segment_files),
)

OF_ONE_CLIENT: Final = ("dump",)
"""Told below the table: hardly any client offers them."""
