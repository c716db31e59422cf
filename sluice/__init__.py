"""The library: declare a fan-out, run its messages, simulate, record and judge it.

The modules here are what every part of it shares: clock, limits, errors, configuration of AWS clients.
"""
