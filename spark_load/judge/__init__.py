"""The verdict: every group checked, what could be checked counted, latencies measured.

It shares no code with what it judges.
"""
