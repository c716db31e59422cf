"""A service that is not ours, with the flight recorder in it: what `docs/guides/recorder.md` shows.

`service` is what somebody else has: plain boto3, a topic, a queue, bodies of its own. `__main__` runs it, and records.
"""
