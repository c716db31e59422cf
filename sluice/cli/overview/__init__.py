"""The commands that show an environment (`status`), an event or group (`find`), and lost messages (`outbox verify`).

They only read. A value that cannot be read is an `Unknown` with its reason, and never a zero.
"""
