"""An environment at a glance, one event or group, and what was lost: `status`, `find`, `outbox verify`. They only read.

What cannot be read is an `Unknown` with its reason, and never a zero.
"""
