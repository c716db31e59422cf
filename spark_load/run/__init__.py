"""One load test from start to verdict, and how a broken one goes on.

The driver's side: what runs in tasks is in `publish` and `consume`.
"""
