"""Disks: all access to files, pools of open files, shared syncs, locks, permissions, and room that
is kept in reserve."""
